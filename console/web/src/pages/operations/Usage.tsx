import type { ReactNode } from "react";
import { useStats } from "@/api/queries";
import { cx } from "@/lib/cx";
import { own } from "@/lib/own";
import type { Tone } from "@/lib/status";
import { bytes, count, dollars } from "@/lib/text";
import { Failed, Loading } from "@/ui/Empty";
import { Badge } from "@/ui/Status";
import { Panel } from "@/ui/Table";
import { Time } from "@/ui/Time";
import { useUsage } from "./queries";

const plainNumber = (n: number) => count(n);

/** What the tenant has and uses, and what it may have. */
export function Usage() {
  const usage = useUsage();
  if (usage.error) return <Failed error={usage.error} again={() => void usage.refetch()} />;
  if (!usage.data) return <Loading what="the usage" />;
  const u = usage.data;
  const quota = u.quota ?? {};
  const rows: { name: string; label: string; used: number; show(n: number): string }[] = [
    { name: "threads", label: "Threads", used: u.threads, show: plainNumber },
    { name: "bytes", label: "Bytes kept", used: u.bytes, show: bytes },
    { name: "runs", label: "Active runs", used: u.active, show: plainNumber },
    { name: "starts", label: "Starts in the last minute", used: u.starts, show: plainNumber },
    { name: "streams", label: "Open streams", used: u.streams, show: plainNumber },
  ];
  const bounded = Object.keys(quota).length > 0;
  return (
    <>
      <Panel title={u.user ? `What ${u.user} has` : u.tenant ? `What the tenant ${u.tenant} has` : "What there is"}>
        <dl className="grid grid-cols-2 gap-x-6 gap-y-4 px-4 py-4 sm:grid-cols-3 lg:grid-cols-6">
          <Figure label="Threads">{count(u.threads)}</Figure>
          <Figure label="Runs">{count(u.runs)}</Figure>
          <Figure label="Active now">{count(u.active)}</Figure>
          <Figure label="Bytes kept">{bytes(u.bytes)}</Figure>
          <Figure label="Tokens">{count(u.spent.tokens ?? 0)}</Figure>
          <Figure label="Cost">{u.spent.cost ? dollars(u.spent.cost) : "none reported"}</Figure>
          {Object.entries(u.spent)
            .filter(([unit]) => unit !== "tokens" && unit !== "cost")
            .map(([unit, n]) => (
              <Figure key={unit} label={unit}>
                {count(n)}
              </Figure>
            ))}
        </dl>
        <p className="border-t border-line px-4 py-2 text-xs text-faint">
          Counted <Time at={u.counted} />. An erased thread takes its numbers with it.
        </p>
      </Panel>
      <Store />
      <Panel title="Quotas">
        {bounded ? (
          <ul className="divide-y divide-line">
            {rows
              .filter((row) => quota[row.name])
              .map((row) => (
                <Meter key={row.name} label={row.label} used={row.used} of={quota[row.name] ?? 0} show={row.show} />
              ))}
          </ul>
        ) : (
          <p className="px-4 py-3 text-soft">Nothing is bounded here. An operator sets quotas with the flag --quota of perdure serve.</p>
        )}
      </Panel>
    </>
  );
}

const survives: Record<string, { tone: Tone; text: string }> = {
  power: { tone: "done", text: "What is acknowledged survives a power failure." },
  process: { tone: "ask", text: "What is acknowledged survives the death of a process, kill -9 included, but not a power failure." },
  none: { tone: "bad", text: "What is acknowledged is gone with the process. Use this store for tests only." },
};

/** What the store's acknowledged writes survive. */
function Store() {
  const { data: stats } = useStats();
  const said = own(survives, stats?.durability);
  if (!stats || !said) return null;
  return (
    <Panel title="Store">
      <p className="flex flex-wrap items-center gap-2 px-4 py-3">
        <Badge tone={said.tone}>durable: {stats.durability}</Badge>
        {said.text}
      </p>
    </Panel>
  );
}

const Figure = ({ label, children }: { label: string; children: ReactNode }) => (
  <div>
    <dt className="text-xs text-faint">{label}</dt>
    <dd className="text-lg font-medium tabular-nums">{children}</dd>
  </div>
);

function Meter({ label, used, of, show }: { label: string; used: number; of: number; show(n: number): string }) {
  const part = Math.min(1, of ? used / of : 0);
  const tone = part >= 1 ? "bg-bad-bar" : part >= 0.8 ? "bg-ask-bar" : "bg-work-bar";
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
      <span className="w-48">{label}</span>
      <span role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={of} aria-valuenow={Math.min(used, of)} className="h-1.5 min-w-32 flex-1 overflow-hidden rounded-full bg-sunken">
        <span className={cx("block h-full", tone)} style={{ width: `${part * 100}%` }} />
      </span>
      <span className="w-40 text-right tabular-nums">
        {show(used)} <span className="text-faint">of {show(of)}</span>
        {part >= 1 && <span className="text-bad"> full</span>}
      </span>
    </li>
  );
}
