import { Ban, ChevronRight, CircleCheck, CircleX, Hourglass, KeyRound, Loader, UserRound, Wrench } from "lucide-react";
import { type ReactNode, useState } from "react";
import { type Ask, wantsSecret } from "@/lib/ask";
import { cx } from "@/lib/cx";
import { parsed } from "@/lib/exact";
import { own } from "@/lib/own";
import { brief, oneLine, plain } from "@/lib/text";
import { duration } from "@/lib/time";
import { Diff } from "@/ui/Diff";
import { Json } from "@/ui/Json";
import { MediaView } from "@/ui/Media";
import { Badge } from "@/ui/Status";
import { Text } from "@/ui/Text";
import type { CallView } from "./said";

interface CallProps {
  call: CallView;
  /** What it waits for. */
  asked?: Ask;
  /** The run has ended: what has no result will not get one. */
  over?: boolean;
  live?: boolean;
  thread: string;
  /** Opens an event in the inspector. */
  onSelect?(seq: number): void;
  /** What a person can do about it, below the card's heading. */
  children?: ReactNode;
}

/** A call of a tool as a card that opens. */
export function Call({ call, thread, asked, over, live, onSelect, children }: CallProps) {
  const [open, setOpen] = useState(false);
  const args = parsed(call.args);
  const text = call.result?.text;
  const value = text === undefined ? undefined : parsed(text);
  return (
    <div className={cx("overflow-hidden rounded border bg-panel", asked ? "border-ask-bar" : "border-line")}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-9 w-full items-center gap-2 px-2 text-left hover:bg-hover">
        <ChevronRight aria-hidden className={cx("size-4 shrink-0 text-faint", open && "rotate-90")} />
        <Wrench aria-hidden className="size-3.5 shrink-0 text-faint" />
        <bdi className="shrink-0 font-mono text-xs font-semibold">{plain(call.name)}</bdi>
        <bdi className="min-w-0 flex-1 truncate text-xs text-faint">{args === undefined ? oneLine(call.args, 200) : brief(args)}</bdi>
        {call.at?.tookMs !== undefined && <span className="shrink-0 text-xs text-faint tabular-nums">{duration(call.at.tookMs)}</span>}
        <CallState call={call} asked={asked} over={over} live={live} />
      </button>
      {open && (
        <div className="space-y-3 border-t border-line px-3 py-2">
          <Detail name="Arguments">{args === undefined ? <Text mono text={call.args} /> : <Json value={args} open={3} />}</Detail>
          {call.ranWith !== undefined && (
            <Detail name="Ran with">
              <Diff before={args ?? call.args} after={call.ranWith} label="What was edited" />
            </Detail>
          )}
          {text !== undefined && (
            <Detail name={call.result?.error ? "Error" : "Result"}>
              {value !== null && typeof value === "object" ? <Json value={value} open={2} /> : <Text mono text={text} limit={3000} />}
            </Detail>
          )}
          {call.result?.media.map((media, at) => (
            <MediaView key={at} thread={thread} media={media} />
          ))}
          {onSelect && call.at && (
            <button type="button" className="rounded text-xs text-accent hover:underline" onClick={() => onSelect(call.at!.seq)}>
              Inspect event #{call.at.seq}
            </button>
          )}
        </div>
      )}
      {children && <div className="border-t border-line">{children}</div>}
    </div>
  );
}

const Detail = ({ name, children }: { name: string; children: ReactNode }) => (
  <section>
    <h4 className="mb-1 text-xs font-medium text-faint">{name}</h4>
    {children}
  </section>
);

const decisions: Record<string, string> = { approve: "approved", edit: "edited", reject: "rejected", respond: "answered", always: "allowed" };
const runsAfter = new Set(["approve", "edit", "always", "provided"]);

function CallState({ call, asked, over, live }: Pick<CallProps, "call" | "asked" | "over" | "live">) {
  if (asked)
    return (
      <Badge tone="ask">
        {wantsSecret(asked) ? <KeyRound aria-hidden /> : <UserRound aria-hidden />}
        {wantsSecret(asked) ? "waits for a credential" : "waits for a person"}
      </Badge>
    );
  const how = call.expired ? "expired" : own(decisions, call.decision);
  const who = call.by && !call.expired ? ` by ${oneLine(call.by, 40)}` : "";
  const more = how ? `${how}${who}` : "";
  if (!call.result) {
    if (call.decision && !runsAfter.has(call.decision))
      return (
        <Badge>
          <Ban aria-hidden />
          {more || "decided"}
        </Badge>
      );
    if (over)
      return (
        <Badge title="The run ended without a result of this call. Its problems say whether it may have acted.">
          <Ban aria-hidden />
          no result
        </Badge>
      );
    return (
      <Badge tone="work">
        <Loader aria-hidden className="animate-pulse" />
        {live ? "being written" : more ? `${more}, runs` : "runs"}
      </Badge>
    );
  }
  if (call.pending)
    return (
      <Badge tone="wait" title={call.pending}>
        <Hourglass aria-hidden />
        goes on elsewhere
      </Badge>
    );
  if (call.result.error)
    return (
      <Badge tone="bad">
        <CircleX aria-hidden />
        {more || "failed"}
      </Badge>
    );
  return (
    <Badge tone="done">
      <CircleCheck aria-hidden />
      {more || "done"}
    </Badge>
  );
}
