import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowLeftRight, GitFork } from "lucide-react";
import { api } from "@/api/client";
import { cx } from "@/lib/cx";
import { count, oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Command } from "@/ui/Copy";
import { Failed, Loading } from "@/ui/Empty";
import { Status } from "@/ui/Status";

const deepest = 20;

/** The thread and those that it was forked from, the oldest first. */
const useAncestors = (thread: string) =>
  useQuery({
    queryKey: ["family", thread, "ancestors"] as const,
    queryFn: async () => {
      const line = [];
      let next: string | undefined = thread;
      while (next && line.length < deepest) {
        const one: Awaited<ReturnType<typeof read>> = await read(next);
        line.unshift(one);
        next = one.fork?.thread;
      }
      return line;
    },
  });

const read = (thread: string) => api.get("/v1/threads/{thread}", { path: { thread } });

/** The branches of a thread as a tree, any of which can be put beside it. */
export function Branches({ thread, with: other, onCompare }: { thread: string; with?: string; onCompare(thread: string): void }) {
  const line = useAncestors(thread);
  if (line.error) return <Failed error={line.error} again={() => void line.refetch()} />;
  if (!line.data) return <Loading what="the branches" />;
  return (
    <div className="space-y-3 p-4">
      <ul className="space-y-1">
        {line.data.map((one, depth) => (
          <li key={one.id} className={cx("flex flex-wrap items-center gap-2 rounded border px-3 py-1.5", one.id === thread ? "border-accent" : "border-line")} style={{ marginLeft: `${depth * 1.25}rem` }}>
            {depth > 0 && <GitFork aria-hidden className="size-3.5 text-faint" />}
            <Status status={one.status} />
            <Link to="/threads/$thread/travel" params={{ thread: one.id }} search={{}} className="truncate text-accent hover:underline">
              <bdi>{oneLine(one.title || one.id, 80)}</bdi>
            </Link>
            {one.fork && <span className="text-xs text-soft">forked at {count(one.fork.seq)}</span>}
            {one.id !== thread && (
              <Button size="small" className="ml-auto" icon={<ArrowLeftRight aria-hidden />} disabled={one.id === other} onClick={() => onCompare(one.id)}>
                Compare
              </Button>
            )}
          </li>
        ))}
      </ul>
      <Command text={`perdure fork ${thread} --at 1`} />
    </div>
  );
}
