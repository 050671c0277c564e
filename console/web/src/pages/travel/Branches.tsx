import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowLeftRight, GitFork } from "lucide-react";
import { type FormEvent, useState } from "react";
import { api } from "@/api/client";
import { cx } from "@/lib/cx";
import { count, oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Failed, Loading } from "@/ui/Empty";
import { Field, Input } from "@/ui/Field";
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
  const [id, setId] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (id.trim()) onCompare(id.trim());
  };
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
            <bdi className="truncate font-mono text-xs text-faint">{oneLine(one.id, 40)}</bdi>
            {one.fork && <span className="text-xs text-soft">forked at {count(one.fork.seq)}</span>}
            {one.id !== thread && (
              <Button size="small" className="ml-auto" icon={<ArrowLeftRight aria-hidden />} disabled={one.id === other} onClick={() => onCompare(one.id)}>
                Compare
              </Button>
            )}
          </li>
        ))}
      </ul>
      <form className="max-w-xl" onSubmit={submit}>
        <Field label="Compare with another thread" hint="A fork names the thread it came from. To see a fork beside this thread, enter its id.">
          {(ids) => (
            <div className="flex gap-2">
              <Input {...ids} value={id} onChange={(e) => setId(e.target.value)} spellCheck={false} autoComplete="off" />
              <Button type="submit" disabled={!id.trim()}>
                Compare
              </Button>
            </div>
          )}
        </Field>
      </form>
    </div>
  );
}
