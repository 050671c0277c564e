import { Brain, Clock } from "lucide-react";
import { memo, type ReactNode } from "react";
import type { Ask } from "@/lib/ask";
import { cx } from "@/lib/cx";
import { compact, oneLine } from "@/lib/text";
import { Markdown } from "@/ui/Markdown";
import { MediaView } from "@/ui/Media";
import { Text } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { Call } from "./Call";
import type { CallView, Said, SaidPart } from "./said";

interface ConversationProps {
  thread: string;
  said: Said[];
  /** The ask for which a call waits. */
  asked?(call: CallView): Ask | undefined;
  /** What a person can do about a call. */
  under?(call: CallView): ReactNode;
  /** No run is active: calls without a result will not get one. */
  over?: boolean;
  /** Opens an event in the inspector. */
  onSelect?(seq: number): void;
}

/** A conversation of people and agents, as it reads: the newest at its end. */
export function Conversation({ said, ...rest }: ConversationProps) {
  const agents = new Set(said.map((s) => s.agent).filter(Boolean));
  return (
    <ol aria-label="Conversation" className="space-y-4">
      {said.map((one) => (
        <li key={one.id} className="[contain-intrinsic-size:auto_8rem] [content-visibility:auto]">
          <Message said={one} named={agents.size > 1} {...rest} />
        </li>
      ))}
    </ol>
  );
}

function Message({ said, named, ...rest }: { said: Said; named: boolean } & Omit<ConversationProps, "said">) {
  if (said.role === "user")
    return (
      <div className="flex flex-col items-end gap-1">
        <div className={cx("max-w-[85%] rounded bg-selected px-3 py-2 sm:max-w-[75%]", said.waits && "opacity-75")}>
          <span className="sr-only">Said by a person: </span>
          <Parts said={said} {...rest} />
        </div>
        <Where said={said} {...rest} />
        {said.waits && (
          <span className="flex items-center gap-1 text-xs text-faint">
            <Clock aria-hidden className="size-3" />
            not read yet
          </span>
        )}
      </div>
    );
  return (
    <div className="space-y-2" aria-busy={said.live}>
      {(named || said.role === "system" || said.at) && (
        <div className="flex items-center gap-2">
          <bdi className="min-w-0 truncate text-xs font-medium text-faint">{said.role === "system" ? "system" : oneLine(said.agent, 80)}</bdi>
          <Where said={said} {...rest} />
        </div>
      )}
      <Parts said={said} {...rest} />
      {said.live && <span aria-label="being written" className="inline-block h-4 w-1.5 animate-pulse rounded-full bg-work-bar" />}
    </div>
  );
}

/** When it was said, what it cost, and the event that says so. */
function Where({ said: { at, tokens }, onSelect }: { said: Said; onSelect?(seq: number): void }) {
  if (!at) return null;
  return (
    <span className="ml-auto flex shrink-0 items-center gap-2 text-xs text-faint">
      {tokens ? <span className="tabular-nums">{compact(tokens)} tokens</span> : null}
      <Time at={at.time} />
      {onSelect && (
        <button type="button" className="rounded tabular-nums hover:text-text hover:underline" title="Inspect the event" onClick={() => onSelect(at.seq)}>
          #{at.seq}
        </button>
      )}
    </span>
  );
}

function Parts({ said, thread, asked, under, over, onSelect }: { said: Said } & Omit<ConversationProps, "said">) {
  return said.parts.map((part, at) =>
    part.kind === "call" ? (
      <Call key={at} thread={thread} call={part.call} asked={asked?.(part.call)} over={over} live={said.live} onSelect={onSelect}>
        {under?.(part.call)}
      </Call>
    ) : (
      <Part key={at} part={part} said={said} thread={thread} />
    ),
  );
}

const Part = memo(function Part({ part, said, thread }: { part: Exclude<SaidPart, { kind: "call" }>; said: Said; thread: string }) {
  if (part.kind === "media") return <MediaView media={part.media} thread={thread} />;
  if (part.kind === "reasoning") return <Reasoning text={part.text} open={!!said.live && said.parts.at(-1) === part} />;
  return said.role === "assistant" ? <Markdown text={part.text} /> : <Text text={part.text} />;
}, (before, after) => before.thread === after.thread && before.said.live === after.said.live && same(before.part, after.part));

/** Parts are made again with every event; those that say the same are not drawn again. */
const same = (a: SaidPart, b: SaidPart) => a.kind === b.kind && (a.kind === "text" || a.kind === "reasoning" ? a.text === (b as typeof a).text : false);

function Reasoning({ text, open }: { text: string; open: boolean }) {
  return (
    <details open={open || undefined} className="text-soft">
      <summary className="inline-flex items-center gap-1.5 rounded text-xs text-faint hover:text-text">
        <Brain aria-hidden className="size-3.5" />
        Reasoning
      </summary>
      <Text text={text} className="mt-1 border-l-2 border-line pl-3 text-soft" />
    </details>
  );
}
