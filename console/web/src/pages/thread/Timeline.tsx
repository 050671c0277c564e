import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronRight, CircleX, GitBranch, RotateCw, Skull, UserRound } from "lucide-react";
import { memo, useMemo, useRef, useState } from "react";
import { useHotkeys } from "@/app/hotkeys";
import { cx } from "@/lib/cx";
import { activeTimes, type Scale, scaleOf } from "@/lib/scale";
import { oneLine } from "@/lib/text";
import { duration } from "@/lib/time";
import { rowsOf, type Segment, type Span, type Takeover, type Timeline as Times } from "@/lib/timeline";
import { Empty } from "@/ui/Empty";
import { toneText } from "@/ui/Status";
import { useNarrow } from "@/ui/useNarrow";

interface Props {
  times: Times;
  selected?: number;
  onSelect(seq: number): void;
}

const rowHeight = 28;

/** The steps of a run as a tree, with bars on a line of time. */
export function Timeline({ times, selected, onSelect }: Props) {
  const narrow = useNarrow();
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [squeeze, setSqueeze] = useState(true);
  const rows = useMemo(() => rowsOf(times.roots, closed), [times, closed]);
  const scale = useMemo(() => {
    const gaps = times.takeovers.map((t) => ({ from: t.from, to: t.at }));
    return scaleOf(times.from, times.to, activeTimes(times.roots, gaps), squeeze);
  }, [times, squeeze]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 20 });
  const at = rows.findIndex((row) => selected !== undefined && row.seqs.includes(selected));
  const toggle = (path: string) => setClosed((before) => new Set(before.has(path) ? [...before].filter((p) => p !== path) : [...before, path]));
  const move = (by: number) => {
    for (let next = at + by; next >= 0 && next < rows.length; next += by) {
      const seq = rows[next]!.seqs.at(-1);
      if (seq === undefined) continue;
      onSelect(seq);
      virtual.scrollToIndex(next);
      return;
    }
  };
  useHotkeys({ j: () => move(1), k: () => move(-1) });
  if (!rows.length) return <Empty title="No step has begun">Steps appear here when a worker takes the run.</Empty>;
  const names = narrow ? "8.5rem" : "17rem";
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <Axis times={times} scale={scale} names={names} squeeze={squeeze} onSqueeze={() => setSqueeze(!squeeze)} onSelect={onSelect} />
      <div ref={scroller} className="min-h-0 flex-1 overflow-y-auto">
        <div role="tree" aria-label="Steps" className="relative" style={{ height: virtual.getTotalSize() }}>
          <Marks scale={scale} takeovers={times.takeovers} names={names} />
          {virtual.getVirtualItems().map((item) => (
            <Row
              key={rows[item.index]!.path}
              span={rows[item.index]!}
              scale={scale}
              names={names}
              top={item.start}
              selected={item.index === at}
              closed={closed.has(rows[item.index]!.path)}
              onToggle={toggle}
              onSelect={onSelect}
            />
          ))}
        </div>
      </div>
      <Legend />
    </div>
  );
}

const percent = (x: number) => `${(x * 100).toFixed(3)}%`;

interface AxisProps {
  times: Times;
  scale: Scale;
  names: string;
  squeeze: boolean;
  onSqueeze(): void;
  onSelect(seq: number): void;
}

function Axis({ times, scale, names, squeeze, onSqueeze, onSelect }: AxisProps) {
  const narrow = useNarrow();
  const total = times.to - times.from;
  const ticks = scale.breaks.length ? [] : [0.25, 0.5, 0.75];
  const wide = (from: number, to: number) => scale.at(to) - scale.at(from) > (narrow ? 0.2 : 0.055);
  return (
    <div className="flex h-8 shrink-0 items-center border-b border-line text-xs whitespace-nowrap text-faint tabular-nums">
      <div className="flex shrink-0 items-center justify-between gap-2 pr-4 pl-4" style={{ width: names }}>
        <button type="button" aria-pressed={squeeze} onClick={onSqueeze} className="truncate rounded text-left text-soft hover:text-text" title="Draw long waits short, or as long as they were">
          {squeeze ? "Waits drawn short" : "True lengths"}
        </button>
        <span className="text-text max-md:hidden">{duration(total)}</span>
      </div>
      <div className="relative mr-4 h-full flex-1">
        {ticks.map((x) => (
          <span key={x} className="absolute top-2 -translate-x-1/2" style={{ left: percent(x) }}>
            {duration(total * x)}
          </span>
        ))}
        {scale.breaks
          .filter((b) => wide(b.from, b.to))
          .map((b) => (
            <span key={b.from} className="absolute top-2 text-wait" style={over(scale, b.from, b.to)} title={`Nothing ran for ${duration(b.to - b.from)}`}>
              {duration(b.to - b.from)}
            </span>
          ))}
        {times.takeovers.map((t) => (
          <button
            key={t.seq}
            type="button"
            onClick={() => onSelect(t.seq)}
            className="absolute top-1.5 flex items-center gap-1 rounded bg-panel px-1 text-bad hover:underline"
            style={over(scale, t.from, t.at)}
            title={`Worker ${t.lost ?? ""} was lost. Another took over after ${duration(t.at - t.from)}.`}
          >
            <Skull aria-hidden className="size-3.5" />
            {narrow || !wide(t.from, t.at) ? <span className="sr-only">worker lost</span> : `worker lost, ${duration(t.at - t.from)}`}
          </button>
        ))}
      </div>
    </div>
  );
}

/** Centred over a stretch of time, but inside of the line. */
function over(scale: Scale, from: number, to: number) {
  const middle = (scale.at(from) + scale.at(to)) / 2;
  return middle > 0.93 ? { right: 0 } : { left: percent(middle), transform: "translateX(-50%)" };
}

/** Takeovers and squeezed waits, behind all rows. */
function Marks({ scale, takeovers, names }: { scale: Scale; takeovers: Takeover[]; names: string }) {
  return (
    <div aria-hidden className="pointer-events-none absolute inset-y-0 right-4" style={{ left: names }}>
      {scale.breaks.map((b) => (
        <div key={b.from} className="absolute inset-y-0 border-x border-dashed border-line" style={{ left: percent(scale.at(b.from)), width: percent(scale.at(b.to) - scale.at(b.from)) }} />
      ))}
      {takeovers.map((t) => (
        <div
          key={t.seq}
          className="absolute inset-y-0 min-w-0.5 border-x border-bad-bar bg-bad-tint"
          style={{ left: percent(scale.at(t.from)), width: percent(scale.at(t.at) - scale.at(t.from)) }}
        />
      ))}
    </div>
  );
}

interface RowProps {
  span: Span;
  scale: Scale;
  names: string;
  top: number;
  selected: boolean;
  closed: boolean;
  onToggle(path: string): void;
  onSelect(seq: number): void;
}

const Row = memo(function Row({ span, scale, names, top, selected, closed, onToggle, onSelect }: RowProps) {
  const seq = span.seqs.at(-1);
  const folder = span.children.length > 0;
  const open = () => (seq !== undefined ? onSelect(seq) : onToggle(span.path));
  const took = span.to === undefined ? undefined : span.to - span.from;
  return (
    <div
      role="treeitem"
      aria-level={span.depth + 1}
      aria-selected={selected}
      aria-expanded={folder ? !closed : undefined}
      className={cx("absolute inset-x-0 flex items-center", selected ? "bg-selected" : "hover:bg-hover")}
      style={{ height: rowHeight, transform: `translateY(${top}px)` }}
    >
      <div className="flex h-full shrink-0 items-center gap-1 pr-2 pl-2" style={{ width: names }}>
        <span className="shrink-0" style={{ width: `${Math.min(span.depth, 8) * 0.75}rem` }} />
        {folder ? (
          <button type="button" aria-label={closed ? "Open" : "Close"} onClick={() => onToggle(span.path)} className="shrink-0 rounded text-faint hover:text-text">
            <ChevronRight aria-hidden className={cx("size-4", !closed && "rotate-90")} />
          </button>
        ) : (
          <span className="w-4 shrink-0" />
        )}
        <button type="button" onClick={open} className="flex min-w-0 flex-1 items-center gap-1.5 rounded text-left" title={span.path}>
          <bdi className={cx("truncate font-mono text-xs", folder && seq === undefined ? "text-soft" : "text-text")}>{oneLine(span.name)}</bdi>
          <RowIcon span={span} />
        </button>
      </div>
      <button type="button" tabIndex={-1} aria-hidden onClick={open} className="relative mr-4 h-full flex-1">
        {folder && span.segments.length === 0 && <Bracket span={span} scale={scale} />}
        {span.segments.map((s, i) => (
          <Bar key={i} segment={s} scale={scale} tone={span.tone} pale={span.replayed} going={span.to === undefined && i === span.segments.length - 1} />
        ))}
        {!folder && span.segments.length === 0 && <Point at={scale.at(span.from)} />}
        {(folder || span.segments.length > 0) && <Label span={span} scale={scale} text={took === undefined ? "" : duration(took)} />}
      </button>
    </div>
  );
});

function RowIcon({ span }: { span: Span }) {
  const look = cx("size-3.5 shrink-0", toneText[span.tone]);
  if (span.error && span.tone === "bad") return <CircleX className={look} aria-label="failed" />;
  if (span.tone === "ask") return <UserRound className={look} aria-label="waits for a person" />;
  if (span.child) return <GitBranch className={cx("size-3.5 shrink-0 text-faint")} aria-label="a child thread" />;
  if (span.attempts > 1)
    return (
      <span className="flex shrink-0 items-center gap-0.5 text-xs text-faint" title={`${span.attempts} attempts`}>
        <RotateCw className="size-3" aria-label="attempts" />
        {span.attempts}
      </span>
    );
  return null;
}

const bars: Record<Segment["look"], string> = {
  run: "bg-done-bar",
  failed: "bg-bad-bar",
  wait: "text-wait-bar hatched",
  ask: "text-ask-bar hatched",
  retry: "text-bad-bar hatched",
};

function Bar({ segment, scale, tone, pale, going }: { segment: Segment; scale: Scale; tone: Span["tone"]; pale: boolean; going: boolean }) {
  const from = scale.at(segment.from);
  const look = segment.look === "run" && tone === "work" ? "bg-work-bar" : bars[segment.look];
  return (
    <span
      className={cx("absolute top-2 h-3 min-w-[3px] rounded-[2px]", look, pale && segment.look === "run" && "opacity-60", going && segment.look === "run" && "animate-pulse")}
      style={{ left: percent(from), width: percent(Math.max(0, scale.at(segment.to) - from)) }}
    />
  );
}

/** What took no time. */
const Point = ({ at }: { at: number }) => <span className="absolute top-2.5 size-2 -translate-x-1/2 rotate-45 bg-idle-bar" style={{ left: percent(at) }} />;

function Bracket({ span, scale }: { span: Span; scale: Scale }) {
  const from = scale.at(span.from);
  const to = span.to === undefined ? 1 : scale.at(span.to);
  return <span className="absolute top-[11px] h-1.5 min-w-[3px] border-x border-t border-line-strong" style={{ left: percent(from), width: percent(to - from) }} />;
}

/** How long it took: behind the bar, or before it where there is no room. */
function Label({ span, scale, text }: { span: Span; scale: Scale; text: string }) {
  const end = span.to === undefined ? 1 : scale.at(span.to);
  const place = end < 0.88 ? { left: `calc(${percent(end)} + 6px)` } : { right: `calc(${percent(1 - scale.at(span.from))} + 6px)` };
  return (
    <span className="absolute top-1.5 text-xs leading-4 whitespace-nowrap text-faint tabular-nums" style={place}>
      {text}
    </span>
  );
}

const Legend = () => (
  <div className="flex shrink-0 flex-wrap items-center gap-x-4 gap-y-1 border-t border-line px-4 py-1.5 text-xs text-soft max-md:hidden">
    {[
      ["bg-done-bar", "ran"],
      ["bg-done-bar opacity-60", "ran once, since then replayed from the journal"],
      ["bg-bad-bar", "failed"],
      ["text-ask-bar hatched", "waited for a person"],
      ["text-wait-bar hatched", "waited"],
      ["text-bad-bar hatched", "waited for the next attempt"],
      ["border-x border-bad-bar bg-bad-tint", "a worker was lost"],
    ].map(([look, word]) => (
      <span key={word} className="flex items-center gap-1.5">
        <span aria-hidden className={cx("h-3 w-4 rounded-[2px]", look)} />
        {word}
      </span>
    ))}
  </div>
);
