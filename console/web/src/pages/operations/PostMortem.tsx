import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { usePostmortem } from "@/api/queries";
import { many, oneLine } from "@/lib/text";
import { duration } from "@/lib/time";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Failed, Loading } from "@/ui/Empty";
import { Status } from "@/ui/Status";
import { Text } from "@/ui/Text";
import { Time } from "@/ui/Time";

const listed = 20;

/** Why the newest run of a thread does not go on, and what can be done now. */
export function PostMortemDialog({ thread, onClose, onRetry }: { thread: string; onClose(): void; onRetry?: () => void }) {
  const found = usePostmortem(thread, "newest");
  const m = found.data;
  return (
    <Dialog
      open
      onClose={onClose}
      wide
      title={`Post-mortem of ${oneLine(thread, 80)}`}
      actions={
        <>
          <Button onClick={onClose}>Close</Button>
          {onRetry && (
            <Button
              look="main"
              onClick={() => {
                onRetry();
                onClose();
              }}
            >
              Retry
            </Button>
          )}
        </>
      }
    >
      {found.error && <Failed error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what="the post-mortem" />}
      {m && (
        <>
          <p className="flex flex-wrap items-center gap-2">
            <Status status={m.status} />
            <bdi className="font-medium">{m.flow}</bdi>
            <span className="text-soft">
              {many(m.usage.steps, "step")}, worked {duration(m.usage.worked_us / 1000)}
              {m.deaths ? `, killed ${many(m.deaths, "worker")} in a row` : ""}
            </span>
            <Link to="/threads/$thread" params={{ thread }} className="ml-auto text-accent hover:underline">
              Open the thread
            </Link>
          </p>
          {m.error && <Text text={m.error} mono className="rounded bg-bad-tint px-3 py-2 text-bad" />}
          {m.diff && <Text text={m.diff} mono className="rounded bg-sunken px-3 py-2" />}
          <Part title="What can be done now" items={m.next}>
            {(step) => (
              <>
                <span className="font-medium">{step.do}</span> <span className="text-soft">{step.why}</span>
                {step.do === "fork" && step.at !== undefined && (
                  <Link to="/threads/$thread/travel" params={{ thread }} search={{ at: String(step.at) }} className="ml-2 text-accent hover:underline">
                    Go to {step.at}
                  </Link>
                )}
              </>
            )}
          </Part>
          <Part title="What failed" items={m.failures}>
            {(failure) => (
              <>
                <Time at={failure.time} className="text-faint" /> <bdi className="font-mono text-xs">{oneLine(failure.path ?? failure.kind, 120)}</bdi>
                {failure.attempt !== undefined && <span className="text-faint"> attempt {failure.attempt}</span>} <bdi className="text-bad">{oneLine(failure.error, 300)}</bdi>
              </>
            )}
          </Part>
          <Part title="What may have happened outside" items={m.effects}>
            {(effect) => (
              <>
                <span className="text-faint tabular-nums">{effect.seq}</span> {effect.kind} <bdi className="font-mono text-xs">{oneLine(effect.path ?? "", 160)}</bdi>
              </>
            )}
          </Part>
          <Part title="Who worked on it" items={m.passes}>
            {(pass) => (
              <>
                <Time at={pass.begun} className="text-faint" /> <bdi className="font-mono text-xs">{pass.worker.slice(0, 8)}</bdi> <span className="text-soft">{pass.end || "did not say how it ended"}</span>
              </>
            )}
          </Part>
          {m.stack && (
            <details>
              <summary className="font-medium">Stack</summary>
              <Text text={m.stack} mono limit={4000} className="mt-1 rounded bg-sunken px-3 py-2" />
            </details>
          )}
        </>
      )}
    </Dialog>
  );
}

function Part<T>({ title, items, children }: { title: string; items?: T[]; children(item: T): ReactNode }) {
  if (!items?.length) return null;
  return (
    <section>
      <h3 className="mb-1 text-xs font-medium text-faint">{title}</h3>
      <ul className="space-y-1">
        {items.slice(0, listed).map((item, n) => (
          <li key={n} className="outside">
            {children(item)}
          </li>
        ))}
        {items.length > listed && <li className="text-faint">and {items.length - listed} more</li>}
      </ul>
    </section>
  );
}
