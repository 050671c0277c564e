import {
  AlertOctagon,
  AlertTriangle,
  Ban,
  Bell,
  Circle,
  CircleCheck,
  CirclePause,
  CircleX,
  Clock,
  FileX,
  Hourglass,
  Loader,
  type LucideIcon,
  MoveRight,
  RotateCw,
  ServerOff,
  UserRound,
} from "lucide-react";
import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { own } from "@/lib/own";
import { type Status as StatusName, statusLook, type Tone, type Why, type WhyState, whyTone, whyWhen } from "@/lib/status";
import { oneLine } from "@/lib/text";
import { useNow } from "./Time";

export const toneText: Record<Tone, string> = {
  done: "text-done",
  work: "text-work",
  ask: "text-ask",
  wait: "text-wait",
  bad: "text-bad",
  idle: "text-idle",
};

export const toneTint: Record<Tone, string> = {
  done: "bg-done-tint",
  work: "bg-work-tint",
  ask: "bg-ask-tint",
  wait: "bg-wait-tint",
  bad: "bg-bad-tint",
  idle: "bg-idle-tint",
};

const statusIcons: Record<string, LucideIcon> = {
  queued: Hourglass,
  running: Loader,
  asks: UserRound,
  waits: Clock,
  paused: CirclePause,
  blocked: AlertTriangle,
  quarantined: AlertOctagon,
  failed: CircleX,
  damaged: FileX,
  succeeded: CircleCheck,
  cancelled: Ban,
  idle: Circle,
};

const whyIcons: Record<WhyState, LucideIcon> = {
  working: Loader,
  queued: Hourglass,
  person: UserRound,
  signal: Bell,
  sleep: Clock,
  retry: RotateCw,
  child: Hourglass,
  "no-worker": ServerOff,
  lease: ServerOff,
  paused: CirclePause,
  blocked: AlertTriangle,
  quarantined: AlertOctagon,
  failed: CircleX,
  done: CircleCheck,
  idle: Circle,
  moved: MoveRight,
};

/** A small label with a tone. */
export function Badge({ tone = "idle", children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span
      title={title}
      className={cx(
        "inline-flex h-5 shrink-0 items-center gap-1 rounded px-1.5 text-xs font-medium whitespace-nowrap [&_svg]:size-3.5",
        toneText[tone],
        toneTint[tone],
      )}
    >
      {children}
    </span>
  );
}

/** The status of a thread or run as icon and word. */
export function Status({ status, asks }: { status: StatusName; asks?: number }) {
  const { tone, word } = statusLook(status, asks);
  const Icon = own(statusIcons, word) ?? Circle;
  return (
    <Badge tone={tone}>
      <Icon aria-hidden className={word === "running" ? "animate-pulse" : undefined} />
      {word}
    </Badge>
  );
}

/** Why a thread does not move. That it has nothing to do is said quietly. */
export function WhyText({ why, className }: { why: Why; className?: string }) {
  const Icon = own(whyIcons, why.state) ?? Circle;
  const quiet = why.state === "done" || why.state === "idle";
  return (
    <span className={cx("inline-flex min-w-0 items-center gap-1.5", quiet ? "text-faint" : toneText[whyTone(why)], className)}>
      {!quiet && <Icon aria-hidden className={cx("size-3.5 shrink-0", why.state === "working" && "animate-pulse")} />}
      <bdi className="truncate">{oneLine(why.text)}</bdi>
      {!quiet && <When why={why} />}
    </span>
  );
}

function When({ why }: { why: Why }) {
  const text = whyWhen(why, useNow());
  return text ? <span className="shrink-0 tabular-nums">{text}</span> : null;
}
