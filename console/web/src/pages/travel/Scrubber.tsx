import { ArrowLeftRight, ChevronFirst, ChevronLast, ChevronLeft, ChevronRight } from "lucide-react";
import { Slider } from "radix-ui";
import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { type Entry, entryText, type Mark } from "@/lib/journal";
import type { Tone } from "@/lib/status";
import { count, oneLine } from "@/lib/text";
import { clock, duration, serverNow } from "@/lib/time";
import { Button } from "@/ui/Button";
import { toneText } from "@/ui/Status";

const bars: Record<Tone, string> = {
  done: "bg-done-bar",
  work: "bg-work-bar",
  ask: "bg-ask-bar",
  wait: "bg-wait-bar",
  bad: "bg-bad-bar",
  idle: "bg-idle-bar",
};

const shapes: Record<Mark["kind"], string> = {
  run: "h-5 w-1 rounded-full",
  end: "size-2.5 rounded-full",
  ask: "size-2.5 rotate-45",
  answer: "size-1.5 rotate-45",
  takeover: "h-7 w-0.5",
  trouble: "size-2.5",
  control: "h-3 w-0.5",
  branch: "h-5 w-0.5",
};

const legend: { kind: Mark["kind"]; tone: Tone; word: string }[] = [
  { kind: "run", tone: "work", word: "run begins" },
  { kind: "end", tone: "done", word: "run ends" },
  { kind: "ask", tone: "ask", word: "ask" },
  { kind: "takeover", tone: "bad", word: "worker lost, another took over" },
  { kind: "branch", tone: "wait", word: "fork, import or rewind" },
];

const thumb = 20; // its width in pixels

interface ScrubberProps {
  entries: Entry[];
  marks: Mark[];
  at: number;
  /** The other point on the same thread. */
  and?: number;
  onMove(at: number, and?: number): void;
  onCompare?(): void;
  actions?: ReactNode;
}

/** The journal as a line, with a thumb at the point that is shown and one at the point it is compared with. */
export function Scrubber({ entries, marks, at, and, onMove, onCompare, actions }: ScrubberProps) {
  const last = entries.at(-1)?.seq ?? 1;
  const here = entries[at - 1];
  const first = entries[0];
  const points = and === undefined ? [at] : [Math.min(at, and), Math.max(at, and)];
  const swapped = and !== undefined && and < at;
  // A thumb stays inside the line, so marks are moved in as it is.
  const place = (seq: number) => {
    const part = last > 1 ? (seq - 1) / (last - 1) : 0;
    return `calc(${part * 100}% + ${(0.5 - part) * thumb}px)`;
  };
  const move = ([low = 1, high]: number[]) => onMove(swapped && high !== undefined ? high : low, high === undefined ? undefined : swapped ? low : high);
  const used = legend.filter((item) => marks.some((mark) => mark.kind === item.kind));
  return (
    <section aria-label="Journal" className="shrink-0 space-y-1 border-b border-line bg-panel px-4 py-2">
      <div className="flex flex-wrap items-center gap-x-1 gap-y-1">
        <Button look="quiet" size="small" icon={<ChevronFirst aria-hidden />} aria-label="First event" title="First event (Home)" disabled={at <= 1} onClick={() => onMove(1, and)} />
        <Button look="quiet" size="small" icon={<ChevronLeft aria-hidden />} aria-label="Previous event" title="Previous event (k or ←)" disabled={at <= 1} onClick={() => onMove(at - 1, and)} />
        <span className="px-1 font-medium tabular-nums">
          {count(at)} <span className="font-normal text-faint">of {count(last)}</span>
        </span>
        <Button look="quiet" size="small" icon={<ChevronRight aria-hidden />} aria-label="Next event" title="Next event (j or →)" disabled={at >= last} onClick={() => onMove(at + 1, and)} />
        <Button look="quiet" size="small" icon={<ChevronLast aria-hidden />} aria-label="Last event" title="Last event (End)" disabled={at >= last} onClick={() => onMove(last, and)} />
        {here && (
          <span className="flex min-w-0 flex-[1_1_14rem] items-baseline gap-2 px-2 max-sm:order-last max-sm:basis-full">
            <span className="font-medium">{here.kind}</span>
            <bdi className="truncate font-mono text-xs text-soft">{oneLine(entryText(here), 200)}</bdi>
            <span className="shrink-0 text-xs text-faint tabular-nums" title={here.time}>
              {clock(Date.parse(here.time), serverNow())}
              {first && at > 1 && <span className="max-sm:hidden"> · {duration(Date.parse(here.time) - Date.parse(first.time))} after the first</span>}
            </span>
          </span>
        )}
        <span className="ml-auto flex items-center gap-2">
          {onCompare && (
            <Button size="small" icon={<ArrowLeftRight aria-hidden />} onClick={onCompare}>
              {and === undefined ? "Compare" : "Stop comparing"}
            </Button>
          )}
          {actions}
        </span>
      </div>
      <div className="relative mx-1.5 pt-1">
        <Slider.Root min={1} max={Math.max(last, 2)} step={1} value={points} onValueChange={move} className="relative flex h-8 touch-none items-center select-none" aria-label="Point in the journal">
          <Slider.Track className="relative h-1 w-full rounded-full bg-line">
            {points.length === 2 && <Slider.Range className="absolute h-1 rounded-full bg-accent" />}
          </Slider.Track>
          <span aria-hidden className="pointer-events-none absolute inset-0">
            {marks.map((mark) => (
              <span
                key={mark.seq}
                title={`${mark.seq}: ${oneLine(mark.text, 120)}`}
                className={cx("absolute top-1/2 -translate-x-1/2 -translate-y-1/2", shapes[mark.kind], bars[mark.tone])}
                style={{ left: place(mark.seq) }}
              />
            ))}
          </span>
          {points.map((seq, n) => (
            <Slider.Thumb
              key={n}
              aria-label={points.length === 1 ? "Shown point" : (n === 0) !== swapped ? "First point" : "Second point"}
              aria-valuetext={`event ${seq}: ${entries[seq - 1]?.kind ?? ""}`}
              className="flex size-5 items-center justify-center rounded-full border-2 border-accent bg-panel text-[0.6875rem] leading-none font-semibold text-accent"
            >
              {points.length === 2 && ((n === 0) !== swapped ? "A" : "B")}
            </Slider.Thumb>
          ))}
        </Slider.Root>
      </div>
      <ul aria-label="Marks" className="flex flex-wrap gap-x-4 gap-y-1 text-xs text-soft max-sm:hidden">
        {used.map((item) => (
          <li key={item.kind} className="flex items-center gap-1.5">
            <span aria-hidden className="flex w-3 justify-center">
              <span className={cx(shapes[item.kind], bars[item.tone], "max-h-3")} />
            </span>
            {item.word}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What happened at a mark, for lists. */
export const MarkText = ({ mark }: { mark: Mark }) => <bdi className={cx("truncate text-xs", toneText[mark.tone])}>{oneLine(mark.text, 120)}</bdi>;
