import { CircleCheck } from "lucide-react";
import type { ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { usePostmortem } from "@/api/queries";
import { many, shortId } from "@/lib/text";
import { duration } from "@/lib/time";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Badge, Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line, Text } from "@/ui/Text";
import { Time } from "@/ui/Time";

type PostMortem = Schemas["PostMortem"];

/** Why a run went wrong, what it may have done, and what can be done now. */
export function Problems({ thread, run, onSelect }: { thread: string; run: string; onSelect(seq: number): void }) {
  const { data, error, isPending, refetch } = usePostmortem(thread, run);
  if (error) return <Failed error={error} again={() => void refetch()} />;
  if (isPending) return <Loading what="the post-mortem" />;
  const good = !data.error && !data.failures?.length && !data.lost && !data.diff && !data.effects?.length;
  return (
    <div className="mx-auto max-w-4xl space-y-4 p-4">
      {good && (
        <Empty icon={<CircleCheck aria-hidden />} title="Nothing went wrong">
          No step failed, and no worker was lost.
        </Empty>
      )}
      {data.error && (
        <Panel title={<Titled text="Why it stopped" status={data.status} />}>
          <Text mono text={data.error} className="p-4 text-bad" />
          {data.stack && <Text mono text={data.stack} limit={1500} className="border-t border-line p-4 text-soft" />}
        </Panel>
      )}
      {data.diff && (
        <Panel title="The code does not match the record">
          <Text mono text={data.diff} className="p-4" />
        </Panel>
      )}
      {data.next && data.next.length > 0 && !good && (
        <Panel title="What can be done now">
          <ul className="divide-y divide-line">
            {data.next.map((step, at) => (
              <li key={at} className="flex items-baseline gap-3 px-4 py-2">
                <Badge tone="work">{step.do}</Badge>
                <Text text={step.why} className="flex-1" />
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {data.failures && data.failures.length > 0 && (
        <Panel title={`Failures (${data.failures.length + (data.left_out?.failures ?? 0)})`}>
          <Table label="Failures" head={["When", "Step", "Error"]}>
            {data.failures.map((f) => (
              <Row key={f.seq}>
                <Cell className="whitespace-nowrap">
                  <Time at={f.time} />
                </Cell>
                <Cell>
                  <SeqLink seq={f.seq} onSelect={onSelect}>
                    <Line text={f.path ?? f.kind} />
                  </SeqLink>
                  {f.attempt ? <span className="ml-2 text-xs whitespace-nowrap text-faint">attempt {f.attempt}{f.attempts ? ` of ${f.attempts}` : ""}</span> : null}
                </Cell>
                <Cell className="py-2">
                  <Text mono text={f.error} limit={600} />
                </Cell>
              </Row>
            ))}
          </Table>
        </Panel>
      )}
      {data.effects && data.effects.length > 0 && (
        <Panel title="What may have happened outside">
          <ul className="divide-y divide-line">
            {data.effects.map((effect) => (
              <li key={effect.seq} className="flex items-baseline gap-3 px-4 py-2">
                <span>{effect.kind === "lost" ? "A worker was lost after" : effect.kind === "failed" ? "It failed, perhaps after it had acted:" : `${effect.kind}:`}</span>
                <SeqLink seq={effect.seq} onSelect={onSelect}>
                  <Line text={effect.path ?? `#${effect.seq}`} />
                </SeqLink>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Passes data={data} onSelect={onSelect} />
      <Used usage={data.usage} />
    </div>
  );
}

const Titled = ({ text, status }: { text: string; status: PostMortem["status"] }) => (
  <span className="flex items-center gap-2">
    {text}
    <Status status={status} />
  </span>
);

const SeqLink = ({ seq, onSelect, children }: { seq: number; onSelect(seq: number): void; children: ReactNode }) => (
  <button type="button" onClick={() => onSelect(seq)} className="max-w-80 truncate rounded text-left font-mono text-xs text-accent hover:underline">
    {children}
  </button>
);

function Passes({ data, onSelect }: { data: PostMortem; onSelect(seq: number): void }) {
  if (!data.passes?.length) return null;
  return (
    <Panel title={data.lost ? `Passes of workers, ${many(data.lost, "worker")} lost` : "Passes of workers"}>
      <Table label="Passes of workers" head={["Worker", "Begun", "Worked", "How it ended"]}>
        {data.passes.map((pass) => (
          <Row key={pass.seq}>
            <Cell>
              <SeqLink seq={pass.seq} onSelect={onSelect}>
                {shortId(pass.worker)}
              </SeqLink>
            </Cell>
            <Cell>
              <Time at={pass.begun} />
            </Cell>
            <Cell className="tabular-nums">{duration(Date.parse(pass.last) - Date.parse(pass.begun))}</Cell>
            <Cell>{pass.end ? <span className={pass.end === "lost" ? "text-bad" : undefined}>{pass.end}</span> : "goes on"}</Cell>
          </Row>
        ))}
      </Table>
    </Panel>
  );
}

function Used({ usage }: { usage: PostMortem["usage"] }) {
  const times: [string, number | undefined][] = [
    ["In all", usage.total_us],
    ["Queued", usage.queued_us],
    ["Worked", usage.worked_us],
    ["In steps", usage.steps_us],
    ["Waited", usage.waited_us],
    ["Lost with workers", usage.lost_us],
  ];
  return (
    <Panel title="Where the time went">
      <dl className="grid grid-cols-2 gap-x-4 gap-y-2 p-4 sm:grid-cols-3">
        {times
          .filter(([, us]) => us)
          .map(([label, us]) => (
            <div key={label}>
              <dt className="text-xs text-faint">{label}</dt>
              <dd className="tabular-nums">{duration(us! / 1000)}</dd>
            </div>
          ))}
        <div>
          <dt className="text-xs text-faint">Steps</dt>
          <dd className="tabular-nums">{usage.steps}</dd>
        </div>
      </dl>
    </Panel>
  );
}
