import { Link } from "@tanstack/react-router";
import { ChevronRight, GitFork, Network } from "lucide-react";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { useThread } from "@/api/queries";
import { cx } from "@/lib/cx";
import { shortId } from "@/lib/text";
import { Status } from "@/ui/Status";
import { Line } from "@/ui/Text";

/** The tree of threads that this one belongs to: whom it works for, and who works for it. */
export function Family({ thread }: { thread: Schemas["Thread"] }) {
  const kin = thread.parent ?? thread.fork;
  const children = (thread.runs ?? []).some((run) => run.children?.length);
  return (
    <div className="mx-auto max-w-3xl space-y-3 p-4">
      {!kin && !children && (
        <p className="flex items-center gap-2 text-soft">
          <Network aria-hidden className="size-4" />
          This thread stands alone: no other started it, and it started none.
        </p>
      )}
      {thread.fork && (
        <p className="flex items-center gap-2 text-soft">
          <GitFork aria-hidden className="size-4" />
          Forked from{" "}
          <Link to="/threads/$thread" params={{ thread: thread.fork.thread }} className="font-mono text-xs text-accent hover:underline">
            {shortId(thread.fork.thread)}
          </Link>{" "}
          after event {thread.fork.seq}
        </p>
      )}
      <ul role="tree" aria-label="Family" className="rounded border border-line bg-panel py-1">
        {thread.parent ? <Member id={thread.parent.thread} here={thread.id} depth={0} open /> : <Member id={thread.id} here={thread.id} depth={0} open />}
      </ul>
    </div>
  );
}

const deepest = 8;

function Member({ id, here, depth, open: first, flow }: { id: string; here: string; depth: number; open?: boolean; flow?: string }) {
  const [open, setOpen] = useState(!!first);
  const { data } = useThread(id);
  const children = (data?.runs ?? []).flatMap((run) => run.children ?? []);
  const run = data?.runs?.at(-1);
  const live = data?.status === "running";
  return (
    <li role="treeitem" aria-expanded={children.length ? open : undefined} aria-current={id === here || undefined}>
      <div className={cx("flex h-9 items-center gap-2 pr-3 pl-2", id === here && "bg-selected", live && "shadow-[inset_3px_0_0_var(--color-work-bar)]")}>
        <span style={{ width: `${depth}rem` }} />
        {children.length > 0 && depth < deepest ? (
          <button type="button" aria-label={open ? "Close" : "Open"} onClick={() => setOpen(!open)} className="rounded text-faint hover:text-text">
            <ChevronRight aria-hidden className={cx("size-4", open && "rotate-90")} />
          </button>
        ) : (
          <span className="w-4" />
        )}
        <Link to="/threads/$thread" params={{ thread: id }} className="flex min-w-0 flex-1 items-baseline gap-2 hover:underline">
          <Line text={data?.title || run?.flow || flow || shortId(id)} className="font-medium" />
          <Line text={shortId(id)} className="shrink-0 font-mono text-xs text-faint" />
        </Link>
        {run?.last && live && <Line text={run.last} className="font-mono text-xs text-faint max-sm:hidden" />}
        {data && <Status status={data.status} asks={run?.asks?.length} />}
      </div>
      {open && children.length > 0 && depth < deepest && (
        <ul role="group">
          {children.map((child) => (
            <Member key={child.thread} id={child.thread} here={here} depth={depth + 1} flow={child.flow} open={depth < 1} />
          ))}
        </ul>
      )}
    </li>
  );
}
