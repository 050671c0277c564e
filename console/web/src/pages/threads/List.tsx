import { useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, type MouseEvent, type RefObject, useEffect, useRef, useState } from "react";
import { cx } from "@/lib/cx";
import { compact, dollars, shortId } from "@/lib/text";
import { changedAt, type ThreadRow } from "@/lib/threadlist";
import { useHotkeys } from "@/app/hotkeys";
import { basePath } from "@/app/place";
import { Status, WhyText } from "@/ui/Status";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useNarrow } from "@/ui/useNarrow";
import { useWhy, type View } from "./live";

const columns =
  "grid items-center gap-x-3 px-4 grid-cols-[6.5rem_minmax(8rem,1.3fr)_6rem_minmax(10rem,1.7fr)_3.5rem_4rem] xl:grid-cols-[6.5rem_minmax(9rem,1.2fr)_6rem_4rem_minmax(12rem,2fr)_7rem_3.5rem_4.5rem] 2xl:grid-cols-[6.5rem_minmax(9rem,1.4fr)_7rem_6rem_minmax(12rem,2fr)_10rem_4rem_4rem_5rem]";

interface Props {
  rows: ThreadRow[];
  /** Learns which rows are in view. */
  view: RefObject<View>;
  /** Called when the end of what was read comes into view. */
  onEnd(): void;
}

/** The rows of the list that are in view, and a few around them. */
export function List({ rows, view, onEnd }: Props) {
  const narrow = useNarrow();
  const scroller = useRef<HTMLDivElement>(null);
  const height = narrow ? 62 : 38;
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 12, getItemKey: (at) => rows[at]!.id });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => virtual.measure(), [height, virtual]);
  useEffect(() => {
    view.current = { first: virtual.range?.startIndex ?? 0, last: virtual.range?.endIndex ?? -1 };
  });
  useEffect(() => {
    if (last >= rows.length - 40) onEnd();
  }, [last, rows.length, onEnd]);
  const { at, move } = useSelection(rows.length, scroller, (index) => virtual.scrollToIndex(index));
  useHotkeys({ j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1) });
  const navigate = useNavigate();
  const open = (event: MouseEvent<HTMLElement>) => {
    const thread = (event.target as HTMLElement).closest<HTMLElement>("[data-thread]")?.dataset.thread;
    if (!thread || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    void navigate({ to: "/threads/$thread", params: { thread } });
  };
  return (
    <div ref={scroller} onClick={open} className="min-h-0 flex-1 overflow-y-auto bg-panel" role="table" aria-label="Threads" aria-rowcount={rows.length}>
      {!narrow && <Head />}
      <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => (
          <div
            key={item.key}
            role="row"
            aria-rowindex={item.index + 1}
            data-row={item.index}
            className={cx("absolute inset-x-0 border-b border-line", item.index === at ? "bg-selected" : "hover:bg-hover")}
            style={{ height, transform: `translateY(${item.start}px)` }}
          >
            {narrow ? <Card row={rows[item.index]!} /> : <Cells row={rows[item.index]!} />}
          </div>
        ))}
      </div>
    </div>
  );
}

/** The row that j and k move, which also has the focus. */
function useSelection(length: number, scroller: RefObject<HTMLDivElement | null>, scrollTo: (index: number) => void) {
  const [at, setAt] = useState(-1);
  const move = (by: number) => {
    const next = Math.max(0, Math.min(length - 1, at + by));
    setAt(next);
    scrollTo(next);
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-row="${next}"] a`)?.focus({ preventScroll: true }));
  };
  return { at, move };
}

const cell = "min-w-0 truncate";

const Head = () => (
  <div role="rowgroup" className="sticky top-0 z-10 border-b border-line bg-panel">
    <div role="row" className={cx(columns, "h-8 text-xs font-medium text-faint")}>
      <span role="columnheader">Status</span>
      <span role="columnheader">Thread</span>
      <span role="columnheader">Flow</span>
      <span role="columnheader" className="hidden xl:block">
        Owner
      </span>
      <span role="columnheader">Why is it not moving?</span>
      <span role="columnheader" className="hidden xl:block">
        Step
      </span>
      <span role="columnheader" className="text-right">
        Tokens
      </span>
      <span role="columnheader" className="hidden text-right 2xl:block">
        Cost
      </span>
      <span role="columnheader" className="text-right">
        Changed
      </span>
    </div>
  </div>
);

/** The name of a thread, whose link covers the row. The list handles the click: a link of the router costs more than the rest of a row. */
function Name({ row }: { row: ThreadRow }) {
  return (
    <a
      href={`${basePath}/threads/${encodeURIComponent(row.id)}`}
      data-thread={row.id}
      className="flex min-w-0 items-baseline gap-2 outline-none after:absolute after:inset-0 focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-accent"
    >
      {row.title ? (
        <>
          <Line text={row.title} className="font-medium" />
          <Line text={shortId(row.id)} className="min-w-0 shrink-[20] font-mono text-xs text-faint md:hidden 2xl:inline" />
        </>
      ) : (
        <Line text={row.id} className="font-mono text-xs" />
      )}
    </a>
  );
}

const Cells = memo(function Cells({ row }: { row: ThreadRow }) {
  const why = useWhy(row);
  return (
    <div className={cx(columns, "h-full")}>
      <span role="cell" className="flex">
        <Status status={row.status} asks={row.asks} />
      </span>
      <span role="cell" className={cell}>
        <Name row={row} />
      </span>
      <span role="cell" className={cx(cell, "text-soft")}>
        <Line text={row.flow ?? ""} />
      </span>
      <span role="cell" className={cx(cell, "hidden text-soft xl:block")}>
        <Line text={row.user ?? ""} />
      </span>
      <span role="cell" className={cx(cell, "flex")}>
        <WhyText why={why} />
      </span>
      <span role="cell" className={cx(cell, "hidden font-mono text-xs text-faint xl:block")}>
        <Line text={why.step ?? ""} />
      </span>
      <span role="cell" className="text-right text-soft tabular-nums">
        {row.spent?.tokens ? compact(row.spent.tokens) : ""}
      </span>
      <span role="cell" className="hidden text-right text-soft tabular-nums 2xl:block">
        {row.spent?.cost ? dollars(row.spent.cost) : ""}
      </span>
      <span role="cell" className="text-right text-soft tabular-nums">
        <Time at={changedAt(row, why)} />
      </span>
    </div>
  );
});

const Card = memo(function Card({ row }: { row: ThreadRow }) {
  const why = useWhy(row);
  return (
    <div className="flex h-full flex-col justify-center gap-1 px-4">
      <div role="cell" className="flex items-center gap-2">
        <span className="min-w-0 flex-1">
          <Name row={row} />
        </span>
        <Time at={changedAt(row, why)} className="shrink-0 text-xs text-faint tabular-nums" />
      </div>
      <div role="cell" className="flex items-center gap-2 text-xs">
        <Status status={row.status} asks={row.asks} />
        <WhyText why={why} className="flex-1" />
        <Line text={row.flow ?? ""} className="shrink-0 text-faint" />
      </div>
    </div>
  );
});
