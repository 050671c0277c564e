import type { News } from "@perdure/client";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CornerDownRight, GitFork, Network } from "lucide-react";
import { useCallback } from "react";
import { api } from "@/api/client";
import { useNews } from "@/app/news";
import { cx } from "@/lib/cx";
import { treeOf } from "@/lib/family";
import { shortId } from "@/lib/text";
import { Failed, Loading } from "@/ui/Empty";
import { Status } from "@/ui/Status";
import { Line } from "@/ui/Text";

/** The tree of threads that this one belongs to: where it comes from, and its forks and children. Those that work are lit. */
export function Family({ thread }: { thread: string }) {
  const family = useQuery({ queryKey: ["family", thread], queryFn: () => api.get("/v1/threads/{thread}/family", { path: { thread } }), refetchInterval: 15_000 });
  const { refetch } = family;
  const known = family.data?.members;
  useNews(
    useCallback(
      (news: News) => {
        if (news.kind === "open" || (news.kind === "thread" && known?.some(({ id, status }) => (id === news.thread.id && status !== news.thread.status) || id === news.thread.parent))) void refetch();
      },
      [known, refetch],
    ),
  );
  if (family.error && !known) return <Failed error={family.error} again={() => void refetch()} />;
  if (!known) return <Loading what="the family" />;
  return (
    <div className="mx-auto max-w-3xl space-y-3 p-4">
      {known.length < 2 && (
        <p className="flex items-center gap-2 text-soft">
          <Network aria-hidden className="size-4" />
          This thread stands alone: no other started it, and it started none.
        </p>
      )}
      <ul role="tree" aria-label="Family" className="rounded border border-line bg-panel py-1">
        {treeOf(known).map(({ member, depth }) => {
          const live = member.status === "running";
          return (
            <li
              key={member.id}
              role="treeitem"
              aria-level={depth + 1}
              aria-current={member.id === thread || undefined}
              className={cx("flex h-9 items-center gap-2 pr-3 pl-3", member.id === thread && "bg-selected", live && "shadow-[inset_3px_0_0_var(--color-work-bar)]")}
            >
              <span className="shrink-0" style={{ width: `${Math.min(depth, 12)}rem` }} />
              {member.kind === "fork" ? <GitFork aria-label="fork" className="size-3.5 shrink-0 text-faint" /> : depth > 0 ? <CornerDownRight aria-label="child" className="size-3.5 shrink-0 text-faint" /> : null}
              <Link to="/threads/$thread" params={{ thread: member.id }} className="flex min-w-0 flex-1 items-baseline gap-2 hover:underline">
                <Line text={member.title || member.flow || shortId(member.id)} className={live ? "font-semibold" : "font-medium"} />
                <Line text={shortId(member.id)} className="shrink-0 font-mono text-xs text-faint" />
                {member.kind === "fork" && <span className="shrink-0 text-xs text-faint">forked at {member.at}</span>}
              </Link>
              <Status status={member.status} />
            </li>
          );
        })}
      </ul>
      {family.data?.more && <p className="text-soft">There are more than these.</p>}
    </div>
  );
}
