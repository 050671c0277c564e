import { CircleHelp, KeyRound, Wrench } from "lucide-react";
import { memo } from "react";
import type { Schemas } from "@/api/client";
import { type Ask, askedCall } from "@/lib/ask";
import { cx } from "@/lib/cx";
import { brief, many, oneLine, plain } from "@/lib/text";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";

interface AskListProps {
  groups: Ask[][];
  threads: Schemas["Summary"][];
  current: string | undefined;
  chosen: ReadonlySet<string>;
  onChoose(ask: Ask): void;
  onToggle(id: string): void;
  onToggleAll(chosen: ReadonlySet<string>): void;
}

/** The open asks. Those of one thread are under one heading if there are several. */
export function AskList({ groups, threads, current, chosen, onChoose, onToggle, onToggleAll }: AskListProps) {
  const known = new Map(threads.map((thread) => [thread.id, thread]));
  return (
    <ul aria-label="Open asks">
      {groups.map((group) => {
        const [first] = group;
        if (!first) return null;
        const thread = known.get(first.thread);
        const title = thread?.title || thread?.flow || first.thread;
        const all = group.every((ask) => chosen.has(ask.id));
        const toggleAll = () => {
          const next = new Set(chosen);
          for (const ask of group) if (all) next.delete(ask.id);
            else next.add(ask.id);
          onToggleAll(next);
        };
        return (
          <li key={first.thread}>
            {group.length > 1 && (
              <label className="flex h-8 items-center gap-3 border-b border-line bg-sunken px-4 text-xs text-soft">
                <input type="checkbox" className="size-4 accent-accent-fill" checked={all} onChange={toggleAll} />
                <Line text={title} className="font-medium" />
                <span className="ml-auto shrink-0">{many(group.length, "ask")} of one thread</span>
              </label>
            )}
            <ul>
              {group.map((ask) => (
                <AskRow
                  key={ask.id}
                  ask={ask}
                  thread={group.length > 1 ? undefined : title}
                  current={ask.id === current}
                  chosen={chosen.has(ask.id)}
                  onChoose={onChoose}
                  onToggle={onToggle}
                />
              ))}
            </ul>
          </li>
        );
      })}
    </ul>
  );
}

interface AskRowProps {
  ask: Ask;
  thread?: string;
  current: boolean;
  chosen: boolean;
  onChoose(ask: Ask): void;
  onToggle(id: string): void;
}

const AskRow = memo(
  function AskRow({ ask, thread, current, chosen, onChoose, onToggle }: AskRowProps) {
    const call = askedCall(ask);
    const Icon = call ? Wrench : ask.kind === "credential" ? KeyRound : CircleHelp;
    const about = brief(call ? (call.args ?? {}) : (ask.data ?? undefined));
    return (
      <li
        id={`row ${ask.id}`}
        aria-current={current || undefined}
        className={cx("flex border-b border-line [contain-intrinsic-size:auto_4rem] [content-visibility:auto]", current ? "bg-selected" : "hover:bg-hover")}
      >
        <label className="flex shrink-0 items-start p-3 pl-4">
          <span className="sr-only">Select</span>
          <input type="checkbox" className="mt-0.5 size-4 accent-accent-fill" checked={chosen} onChange={() => onToggle(ask.id)} />
        </label>
        <button type="button" onClick={() => onChoose(ask)} className="min-w-0 flex-1 py-2.5 pr-4 text-left -outline-offset-2">
          <span className="flex items-center gap-2">
            <Icon aria-hidden className="size-3.5 shrink-0 text-ask" />
            {call ? <bdi className="truncate font-mono text-xs font-semibold">{plain(call.tool)}</bdi> : <Line text={ask.prompt || ask.path} className="font-medium" />}
            <Time at={ask.asked} className="ml-auto shrink-0 text-xs text-faint" />
          </span>
          {about && <bdi className="block truncate text-soft">{about}</bdi>}
          <span className="flex items-center gap-2 text-xs text-faint">
            {thread && <Line text={thread} />}
            {ask.who?.length ? <span className="shrink-0 truncate">for {ask.who.map((name) => oneLine(name.replace(/^group:/, ""), 30)).join(", ")}</span> : null}
            {ask.expires && (
              <span className="ml-auto shrink-0 text-ask">
                expires <Time at={ask.expires} />
              </span>
            )}
          </span>
        </button>
      </li>
    );
  },
  (a, b) => a.current === b.current && a.chosen === b.chosen && a.thread === b.thread && a.ask.id === b.ask.id && a.onChoose === b.onChoose,
);
