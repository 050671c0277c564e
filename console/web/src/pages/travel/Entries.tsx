import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { cx } from "@/lib/cx";
import { type Entry, entryText, type Mark, pathTail } from "@/lib/journal";
import { oneLine } from "@/lib/text";
import { duration } from "@/lib/time";
import { MarkText } from "./Scrubber";

/** The events of a journal as a list, with the shown one lit. */
export function Entries({ entries, marks, at, and, onMove }: { entries: Entry[]; marks: Mark[]; at: number; and?: number; onMove(at: number): void }) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: entries.length, getScrollElement: () => box.current, estimateSize: () => 28, overscan: 12 });
  const bySeq = new Map(marks.map((mark) => [mark.seq, mark]));
  useEffect(() => {
    if (at > 0) rows.scrollToIndex(at - 1, { align: "auto" });
  }, [at, rows]);
  return (
    <div ref={box} tabIndex={-1} className="h-full overflow-y-auto">
      <ol aria-label="Events" className="relative" style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map((row) => {
          const e = entries[row.index]!;
          const mark = bySeq.get(e.seq);
          const shown = e.seq === at;
          const later = e.seq > Math.max(at, and ?? 0);
          return (
            <li key={e.seq} className="absolute inset-x-0" style={{ height: row.size, transform: `translateY(${row.start}px)` }}>
              <button
                type="button"
                tabIndex={-1}
                aria-current={shown ? "true" : undefined}
                onClick={() => onMove(e.seq)}
                className={cx("flex h-7 w-full items-center gap-2 px-3 text-left text-xs", shown ? "bg-selected" : "hover:bg-hover", later && !shown && "text-faint")}
              >
                <span className="w-9 shrink-0 text-right text-faint tabular-nums">{e.seq}</span>
                {e.seq === and && <span className="font-semibold text-accent">B</span>}
                <span className="shrink-0 font-medium">{e.kind}</span>
                {mark ? <MarkText mark={mark} /> : <bdi title={e.path} className="truncate font-mono text-soft">{oneLine(pathTail(entryText(e)), 160)}</bdi>}
                {e.took_us !== undefined && <span className="ml-auto shrink-0 text-faint tabular-nums">{duration(e.took_us / 1000)}</span>}
              </button>
            </li>
          );
        })}
      </ol>
    </div>
  );
}
