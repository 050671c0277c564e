import { useVirtualizer } from "@tanstack/react-virtual";
import { Terminal } from "lucide-react";
import { useEffect, useRef } from "react";
import { cliOf, curlOf } from "@/lib/commands";
import { cx } from "@/lib/cx";
import { shortId } from "@/lib/text";
import { clock } from "@/lib/time";
import type { Event } from "@/lib/timeline";
import { Copy } from "@/ui/Copy";
import { Line } from "@/ui/Text";

const rowHeight = 29;

/** All events, as they are recorded. Only those in view are drawn. */
export function Events({ thread, events, selected, onSelect }: { thread: string; events: Event[]; selected?: number; onSelect(seq: number): void }) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: events.length, getScrollElement: () => box.current, estimateSize: () => rowHeight, overscan: 12 });
  const at = selected === undefined ? -1 : events.findIndex((event) => event.seq === selected);
  useEffect(() => {
    if (at >= 0) rows.scrollToIndex(at, { align: "auto" });
  }, [at, rows]);
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="flex shrink-0 items-center gap-2 border-b border-line px-4 py-1 text-xs text-soft">
        <Terminal aria-hidden className="size-4" />
        <span className="flex-1">Everything that is recorded about this thread</span>
        <Copy text={() => cliOf(["events", "--follow"], thread)} label="CLI" what="Copy as a command line" />
        <Copy text={() => curlOf("GET", `/v1/threads/${encodeURIComponent(thread)}/events`)} label="curl" what="Copy as a curl command" />
      </div>
      <div ref={box} tabIndex={-1} className="min-h-0 flex-1 overflow-y-auto">
        <ol aria-label="All events" className="relative" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => (
            <li key={row.key} aria-setsize={events.length} aria-posinset={row.index + 1} className="absolute inset-x-0 border-b border-line" style={{ height: rowHeight, transform: `translateY(${row.start}px)` }}>
              <OneEvent event={events[row.index]!} selected={row.index === at} onSelect={onSelect} />
            </li>
          ))}
        </ol>
      </div>
    </div>
  );
}

const OneEvent = ({ event, selected, onSelect }: { event: Event; selected: boolean; onSelect(seq: number): void }) => (
  <button
    type="button"
    onClick={() => onSelect(event.seq)}
    className={cx("grid h-full w-full grid-cols-[3rem_4.5rem_6rem_1fr] items-center gap-2 px-4 text-left text-xs", selected ? "bg-selected" : "hover:bg-hover")}
  >
    <span className="text-faint tabular-nums">{event.seq}</span>
    <span className="text-faint tabular-nums">{clock(Date.parse(event.time), Date.parse(event.time))}</span>
    <span className={event.error ? "text-bad" : "text-soft"}>{event.kind}</span>
    <span className="min-w-0 truncate font-mono">
      <Line text={event.path ?? event.name ?? event.status ?? (event.worker ? `worker ${shortId(event.worker)}` : "")} />
    </span>
  </button>
);
