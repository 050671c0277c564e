import type { LiveStep } from "@perdure/client";
import { Link } from "@tanstack/react-router";
import { Loader, MessagesSquare } from "lucide-react";
import { useMemo } from "react";
import { Conversation as Messages } from "@/chat/Conversation";
import { Ending } from "@/chat/Ending";
import { conversation, type Heard, isReply } from "@/chat/said";
import { type Ask, askOfCall } from "@/lib/ask";
import { buttonClass } from "@/ui/Button";
import { Empty } from "@/ui/Empty";
import { Line } from "@/ui/Text";

interface Props {
  thread: string;
  heard: Heard[];
  live: LiveStep[];
  /** The open asks of the thread. */
  asks: Ask[];
  /** No run is active. */
  over: boolean;
  /** Opens an event in the inspector. */
  onSelect(seq: number): void;
}

/** What was said, and what is being said now. */
export function Conversation({ thread, heard, live, asks, over, onSelect }: Props) {
  const said = useMemo(() => conversation(heard, live.filter(isReply)), [heard, live]);
  const progress = live.filter((step) => !isReply(step));
  if (!said.length)
    return (
      <Empty icon={<MessagesSquare aria-hidden />} title="Nothing was said">
        Messages of agents appear here. This thread has none yet.
      </Empty>
    );
  return (
    <Ending watch={said}>
      <Messages
        thread={thread}
        said={said}
        over={over}
        onSelect={onSelect}
        asked={(call) => askOfCall(asks, call)}
        under={(call) => {
          const ask = askOfCall(asks, call);
          return (
            ask && (
              <div className="p-2">
                <Link to="/asks/$ask" params={{ ask: ask.id }} className={buttonClass("plain", "small")}>
                  Decide
                </Link>
              </div>
            )
          );
        }}
      />
      {progress.map((step) => (
        <p key={step.path} className="flex items-center gap-2 text-xs text-soft">
          <Loader aria-hidden className="size-3.5 animate-pulse text-work" />
          <Line text={step.path} className="shrink-0 font-mono text-faint" />
          <Line text={JSON.stringify(step.data)} />
        </p>
      ))}
    </Ending>
  );
}
