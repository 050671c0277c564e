import { ArrowRight } from "lucide-react";
import type { ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { many, oneLine } from "@/lib/text";
import { Diff } from "@/ui/Diff";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Status } from "@/ui/Status";
import { Panel } from "@/ui/Table";
import { type Sides, useDifference } from "./queries";

/** What changed between two points, of one thread or of two. */
export function Changes({ sides }: { sides: Sides }) {
  const query = useDifference(sides);
  if (query.error) return <Failed error={query.error} again={() => void query.refetch()} />;
  if (!query.data) return <Loading what="the difference" />;
  const d = query.data;
  const parts = [d.state, d.facts, d.deps, d.runs, d.opened, d.closed, d.events, d.left];
  if (!parts.some((part) => part?.length))
    return (
      <Empty title="Nothing changed">
        Both points show the same state, runs and asks. Move one of them along the journal.
      </Empty>
    );
  const twoThreads = d.from.thread !== d.to.thread;
  return (
    <div className="space-y-4 p-4">
      <p className="text-soft">
        {twoThreads ? `The threads share their first ${many(d.common, "event")}. ` : ""}
        {d.events?.length ? `${many(d.events.length, "event")} ${d.events.length === 1 ? "is" : "are"} only in B` : "B has no event that A lacks"}
        {d.left?.length ? `, ${many(d.left.length, "event")} only in A.` : "."}
      </p>
      {d.runs && d.runs.length > 0 && (
        <Panel title="Runs">
          <ul className="divide-y divide-line">
            {d.runs.map((run) => (
              <li key={run.run} className="flex flex-wrap items-center gap-2 px-4 py-2">
                <bdi className="font-mono text-xs text-faint">{run.run.slice(0, 8)}</bdi>
                {run.before === undefined ? <span className="text-soft">not there</span> : <Status status={run.before} />}
                <ArrowRight aria-label="became" className="size-3.5 text-faint" />
                {run.after === undefined ? <span className="text-soft">not there</span> : <Status status={run.after} />}
                {run.steps !== 0 && <span className="text-soft">{run.steps > 0 ? `${many(run.steps, "more step", "more steps")}` : `${many(-run.steps, "step")} fewer`}</span>}
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Asks title="Asked since" asks={d.opened} />
      <Asks title="No longer open" asks={d.closed} />
      <Keys title="State" keys={d.state} />
      <Keys title="Facts" keys={d.facts} />
      <Keys title="Dependencies" keys={d.deps} />
      <Refs title="Events only in A" refs={d.left} />
      <Refs title="Events only in B" refs={d.events} />
    </div>
  );
}

const Asks = ({ title, asks }: { title: string; asks?: Schemas["AskInfo"][] }) =>
  asks?.length ? (
    <Panel title={title}>
      <ul className="divide-y divide-line">
        {asks.map((ask) => (
          <li key={ask.id} className="px-4 py-2">
            <bdi>{oneLine(ask.prompt ?? ask.path)}</bdi>
          </li>
        ))}
      </ul>
    </Panel>
  ) : null;

/** A name for a key of the state that agents write. */
function keyTitle(key: string): ReactNode {
  if (key === "agent.messages") return "Conversation";
  if (key.startsWith("agent.file:")) return <>File {oneLine(key.slice("agent.file:".length), 120)}</>;
  return <bdi className="font-mono text-xs">{oneLine(key, 160)}</bdi>;
}

function Keys({ title, keys }: { title: string; keys?: Schemas["KeyDiff"][] }) {
  const shown = (keys ?? []).filter((key) => !key.key.startsWith("agent.file-info:"));
  if (!shown.length) return null;
  return (
    <section className="space-y-2">
      <h3 className="text-xs font-medium text-faint">{title}</h3>
      {shown.map((key) => (
        <Panel key={key.key} title={keyTitle(key.key)}>
          <div className="p-2">
            <Diff before={readable(key.key, key.before)} after={readable(key.key, key.after)} label={`Difference of ${key.key}`} />
          </div>
        </Panel>
      ))}
    </section>
  );
}

/** Messages as lines that a person reads; everything else as it is. */
function readable(key: string, value: unknown): unknown {
  if (key !== "agent.messages" || !Array.isArray(value)) return value;
  return (value as Schemas["Record"][])
    .map(({ agent, from, message }) =>
      (message?.parts ?? [])
        .map((part) => {
          const who = message.role === "user" ? (from ?? "user") : agent;
          if (part.text !== undefined) return `${who}: ${part.text}`;
          if (part.call) return `${who} calls ${part.call.name} ${part.call.args ?? ""}`;
          if (part.result) return `${part.result.name} ${part.result.error ? "failed" : "returned"}: ${part.result.text}`;
          return `${who}: ${JSON.stringify(part)}`;
        })
        .join("\n"),
    )
    .join("\n");
}

const shownRefs = 200;

const Refs = ({ title, refs }: { title: string; refs?: Schemas["EventRef"][] }) =>
  refs?.length ? (
    <details className="rounded border border-line bg-panel">
      <summary className="px-4 py-2 font-medium">
        {title} <span className="font-normal text-faint tabular-nums">{refs.length}</span>
      </summary>
      <ol className="border-t border-line py-1">
        {refs.slice(0, shownRefs).map((ref) => (
          <li key={ref.seq} className="flex gap-2 px-4 py-0.5 text-xs">
            <span className="w-9 shrink-0 text-right text-faint tabular-nums">{ref.seq}</span>
            <span className="font-medium">{ref.kind}</span>
            <bdi className="truncate font-mono text-soft">{oneLine(ref.path ?? "", 160)}</bdi>
          </li>
        ))}
        {refs.length > shownRefs && <li className="px-4 py-1 text-xs text-faint">and {refs.length - shownRefs} more</li>}
      </ol>
    </details>
  ) : null;
