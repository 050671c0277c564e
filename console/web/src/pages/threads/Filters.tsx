import { Search, X } from "lucide-react";
import { type Ref, useEffect, useState } from "react";
import { useFlows, useStats } from "@/api/queries";
import { cx } from "@/lib/cx";
import { type Status, statuses, statusLook } from "@/lib/status";
import { count } from "@/lib/text";
import { countStatuses, type ThreadFilter, type ThreadRow } from "@/lib/threadlist";
import { Button } from "@/ui/Button";
import { Input, Select } from "@/ui/Field";
import { toneText } from "@/ui/Status";

interface Props {
  filter: ThreadFilter;
  onChange(change: Partial<ThreadFilter>): void;
  search: Ref<HTMLInputElement>;
  /** What fits the filter, as far as it was read. */
  rows: ThreadRow[];
  complete: boolean;
}

export function Filters({ filter, onChange, search, rows, complete }: Props) {
  const stats = useStats();
  const flows = useFlows();
  const counts = stats.data?.statuses ?? {};
  const names = new Set([...(flows.data?.flows ?? []).map((flow) => flow.name), ...(filter.flow ? [filter.flow] : [])]);
  const narrowed = !!(filter.q || filter.flow || filter.user); // the server counts all threads only
  const counted = narrowed ? countStatuses(rows, filter, complete) : { all: stats.data?.threads, statuses: counts };
  const active = !!(filter.q || filter.status || filter.flow || filter.user);
  return (
    <div className="shrink-0 space-y-2 border-b border-line bg-panel px-4 py-2">
      <div className="flex flex-wrap items-center gap-2">
        <div className="relative min-w-0 basis-full sm:max-w-80 sm:flex-1 sm:basis-auto">
          <Search aria-hidden className="pointer-events-none absolute top-2 left-2 size-4 text-faint" />
          <Typed ref={search} value={filter.q} onChange={(q) => onChange({ q })} label="Search threads" placeholder="Search id, title, flow, owner, metadata" className="pl-8" />
        </div>
        <Select aria-label="Flow" className="!w-auto min-w-28 flex-1 sm:flex-none" value={filter.flow} onChange={(e) => onChange({ flow: e.target.value })}>
          <option value="">All flows</option>
          {[...names].sort().map((name) => (
            <option key={name}>{name}</option>
          ))}
        </Select>
        <Typed value={filter.user} onChange={(user) => onChange({ user })} label="Owner" placeholder="Owner" className="!w-28 flex-1 sm:max-w-28" />
        {active && (
          <Button look="quiet" icon={<X aria-hidden />} onClick={() => onChange({ q: "", status: "", flow: "", user: "" })}>
            Clear
          </Button>
        )}
      </div>
      <div role="group" aria-label="Status" className="-mx-4 flex gap-1 overflow-x-auto px-4 [scrollbar-width:none]">
        <Chip label="all" count={counted.all} on={!filter.status} onClick={() => onChange({ status: "" })} />
        {statuses
          .filter((status) => counts[status] || counted.statuses[status] || filter.status === status)
          .map((status) => (
            <Chip
              key={status}
              label={status === "suspended" ? "waiting" : status}
              status={status}
              count={counted.statuses[status] ?? (counted.all === undefined ? undefined : 0)}
              on={filter.status === status}
              onClick={() => onChange({ status: filter.status === status ? "" : status })}
            />
          ))}
        {narrowed && counted.all === undefined && (
          <span className="flex h-7 shrink-0 items-center px-1 text-xs text-faint">{filter.status ? "Others are counted without a status" : "Counted once the list is read to its end"}</span>
        )}
      </div>
    </div>
  );
}

/** A text field that tells what was typed when the typist pauses. */
function Typed(props: { value: string; onChange(value: string): void; label: string; placeholder: string; className?: string; ref?: Ref<HTMLInputElement> }) {
  const [text, setText] = useState(props.value);
  useEffect(() => setText(props.value), [props.value]);
  useEffect(() => {
    if (text === props.value) return;
    const timer = setTimeout(() => props.onChange(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <Input
      ref={props.ref}
      type="search"
      aria-label={props.label}
      placeholder={props.placeholder}
      className={props.className}
      value={text}
      onChange={(e) => setText(e.target.value)}
      onKeyDown={(e) => e.key === "Escape" && e.currentTarget.blur()}
    />
  );
}

function Chip({ label, status, count: n, on, onClick }: { label: string; status?: Status; count?: number; on: boolean; onClick(): void }) {
  return (
    <button
      type="button"
      aria-pressed={on}
      onClick={onClick}
      className={cx(
        "flex h-7 shrink-0 items-center gap-1.5 rounded border px-2 text-xs",
        on ? "border-accent bg-selected text-text" : "border-line text-soft hover:bg-hover hover:text-text",
      )}
    >
      <span className={status && !on ? toneText[statusLook(status).tone] : undefined}>{label}</span>
      {n !== undefined && <span className="text-faint tabular-nums">{count(n)}</span>}
    </button>
  );
}
