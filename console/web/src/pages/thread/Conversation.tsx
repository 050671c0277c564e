import { Link } from "@tanstack/react-router";
import { Bot, Brain, ChevronRight, CircleCheck, CircleX, Loader, MessagesSquare, UserRound, Wrench } from "lucide-react";
import { memo, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { conversationOf, type ToolCall, type Turn } from "@/lib/conversation";
import { cx } from "@/lib/cx";
import { type LiveStep, replyOf } from "@/lib/deltas";
import { compact, oneLine } from "@/lib/text";
import { duration } from "@/lib/time";
import type { Event } from "@/lib/timeline";
import { Empty } from "@/ui/Empty";
import { Json } from "@/ui/Json";
import { Markdown } from "@/ui/Markdown";
import { MediaView } from "@/ui/Media";
import { Badge } from "@/ui/Status";
import { Line, Text } from "@/ui/Text";
import { Time } from "@/ui/Time";

interface Props {
  thread: string;
  events: Event[];
  live: LiveStep[];
  /** Opens an event in the inspector. */
  onSelect?(seq: number): void;
}

/** What was said, and what is being said now. It stays at its end while that is in view. */
export function Conversation({ thread, events, live, onSelect }: Props) {
  const turns = useMemo(() => conversationOf(events), [events]);
  const replies = live.filter((step) => /\/reply(-again)?$/.test(step.path)).map(replyOf);
  const progress = live.filter((step) => !/\/reply(-again)?$/.test(step.path));
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const box = scroller.current;
    if (box && atEnd.current) box.scrollTop = box.scrollHeight;
  });
  if (!turns.length && !replies.length) {
    return (
      <Empty icon={<MessagesSquare aria-hidden />} title="Nothing was said">
        Messages of agents appear here. This thread has none yet.
      </Empty>
    );
  }
  return (
    <div
      ref={scroller}
      className="min-h-0 flex-1 overflow-y-auto"
      onScroll={(e) => {
        const box = e.currentTarget;
        atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
      }}
    >
      <ol aria-label="Conversation" aria-live="off" className="mx-auto max-w-3xl space-y-5 px-4 py-5">
        {turns.map((turn) => (
          <OneTurn key={turn.seq} thread={thread} turn={turn} onSelect={onSelect} />
        ))}
        {replies.map((reply) => (
          <Said key={reply.path} who={<Agent name={reply.agent} />} when={<Badge tone="work">writing</Badge>}>
            {reply.parts.map((part, at) =>
              part.kind === "text" ? (
                <div key={at}>
                  <Text text={part.text} limit={100_000} />
                </div>
              ) : part.kind === "reasoning" ? (
                <Thought key={at} text={part.text} open />
              ) : (
                <div key={at} className="flex items-center gap-2 rounded border border-line bg-panel px-3 py-1.5 text-xs">
                  <Wrench aria-hidden className="size-4 text-faint" />
                  <Line text={part.name ?? "a tool"} className="shrink-0 font-medium" />
                  <Line text={part.text} className="font-mono text-faint" />
                </div>
              ),
            )}
            <span aria-hidden className="inline-block h-4 w-1.5 animate-pulse bg-accent align-text-bottom" />
          </Said>
        ))}
        {progress.map((step) => (
          <li key={step.path} className="flex items-center gap-2 pl-8 text-xs text-soft">
            <Loader aria-hidden className="size-3.5 animate-pulse text-work" />
            <Line text={step.path} className="shrink-0 font-mono text-faint" />
            <Line text={JSON.stringify(step.data.at(-1))} />
          </li>
        ))}
      </ol>
    </div>
  );
}

const Agent = ({ name }: { name: string }) => (
  <span className="flex min-w-0 items-center gap-2">
    <Bot aria-hidden className="size-5 rounded bg-selected p-0.5 text-accent" />
    <Line text={name || "agent"} className="font-medium" />
  </span>
);

/** Who is spoken to: a person or another agent may have written it. */
const Person = ({ to }: { to: string }) => (
  <span className="flex min-w-0 items-center gap-2">
    <UserRound aria-hidden className="size-5 rounded bg-idle-tint p-0.5 text-idle" />
    <Line text={`To ${to}`} className="font-medium" />
  </span>
);

const Said = ({ who, when, children, own }: { who: ReactNode; when: ReactNode; children: ReactNode; own?: boolean }) => (
  <li className={cx("space-y-1.5 [contain-intrinsic-size:auto_8rem] [content-visibility:auto]", own && "rounded border border-line bg-panel px-3 py-2.5")}>
    <div className="flex items-center gap-2">
      {who}
      <span className="ml-auto flex shrink-0 items-center gap-2 text-xs text-faint">{when}</span>
    </div>
    <div className={cx("space-y-2", !own && "sm:pl-7")}>{children}</div>
  </li>
);

const OneTurn = memo(function OneTurn({ thread, turn, onSelect }: { thread: string; turn: Turn; onSelect?(seq: number): void }) {
  return (
    <Said
      own={turn.role === "user"}
      who={turn.role === "user" ? <Person to={turn.agent || "the agent"} /> : <Agent name={turn.agent} />}
      when={
        <>
          {turn.tokens ? <span className="tabular-nums">{compact(turn.tokens)} tokens</span> : null}
          <Time at={turn.time} />
          {onSelect && (
            <button type="button" className="rounded tabular-nums hover:text-text hover:underline" title="Inspect the event" onClick={() => onSelect(turn.seq)}>
              #{turn.seq}
            </button>
          )}
        </>
      }
    >
      {turn.reasoning.map((text, at) => (
        <Thought key={at} text={text} />
      ))}
      {turn.texts.map((text, at) => (turn.role === "user" ? <Text key={at} text={text} /> : <Markdown key={at} text={text} />))}
      {turn.media.map((media, at) => (
        <MediaView key={at} thread={thread} media={media} />
      ))}
      {turn.calls.map((call) => (
        <CallCard key={call.id + call.path} thread={thread} call={call} onSelect={onSelect} />
      ))}
    </Said>
  );
});

function Thought({ text, open }: { text: string; open?: boolean }) {
  return (
    <details open={open} className="text-soft">
      <summary className="flex items-center gap-1.5 text-xs select-none">
        <Brain aria-hidden className="size-3.5" />
        Reasoning
      </summary>
      <Text text={text} className="mt-1 border-l-2 border-line pl-3 text-xs" />
    </details>
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The call of a tool: what it was given, who decided, and what came of it. */
function CallCard({ thread, call, onSelect }: { thread: string; call: ToolCall; onSelect?(seq: number): void }) {
  const [open, setOpen] = useState(!!call.ask);
  const args = useMemo(() => parsed(call.args), [call.args]);
  const short = args && typeof args === "object" ? Object.values(args).map((v) => (typeof v === "string" ? v : JSON.stringify(v))).join(", ") : call.args;
  return (
    <div className="rounded border border-line bg-panel">
      <div className="flex min-h-8 items-center gap-2 pr-2 text-xs">
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-8 min-w-0 flex-1 items-center gap-2 rounded pl-2 text-left">
          <ChevronRight aria-hidden className={cx("size-4 shrink-0 text-faint", open && "rotate-90")} />
          <Wrench aria-hidden className="size-3.5 shrink-0 text-faint" />
          <Line text={call.name} className="shrink-0 font-medium" />
          <Line text={short} className="font-mono text-faint" />
        </button>
        {call.decision && (
          <span className="shrink-0 text-soft">
            {oneLine(call.decision)}
            {call.by && ` by ${oneLine(call.by, 40)}`}
          </span>
        )}
        {call.tookMs !== undefined && <span className="shrink-0 text-faint tabular-nums">{duration(call.tookMs)}</span>}
        <CallState call={call} />
      </div>
      {open && (
        <div className="space-y-2 border-t border-line px-3 py-2">
          {args === undefined ? <Text mono text={call.args} /> : <Json value={args} open={3} />}
          {call.rejected && <Text text={call.rejected} className="text-bad" />}
          {call.result && (
            <div className={cx("rounded p-2", call.result.error ? "bg-bad-tint" : "bg-sunken")}>
              <Text mono text={call.result.text} limit={2500} />
            </div>
          )}
          {call.result?.media.map((media, at) => (
            <MediaView key={at} thread={thread} media={media} />
          ))}
          {onSelect && call.resultSeq !== undefined && (
            <button type="button" className="rounded text-xs text-accent hover:underline" onClick={() => onSelect(call.resultSeq!)}>
              Inspect event #{call.resultSeq}
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function CallState({ call }: { call: ToolCall }) {
  if (call.ask)
    return (
      <Link to="/asks/$ask" params={{ ask: call.ask }} className="rounded">
        <Badge tone="ask">
          <UserRound aria-hidden />
          decide
        </Badge>
      </Link>
    );
  if (!call.result)
    return (
      <Badge tone="work">
        <Loader aria-hidden className="animate-pulse" />
        open
      </Badge>
    );
  return call.result.error ? (
    <Badge tone="bad">
      <CircleX aria-hidden />
      error
    </Badge>
  ) : (
    <Badge tone="done">
      <CircleCheck aria-hidden />
      done
    </Badge>
  );
}
