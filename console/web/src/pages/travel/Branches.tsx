import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowLeftRight, GitFork } from "lucide-react";
import { type FormEvent, useState } from "react";
import { api } from "@/api/client";
import { cx } from "@/lib/cx";
import { branchesOf } from "@/lib/family";
import { count, oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Failed, Loading } from "@/ui/Empty";
import { Field, Input } from "@/ui/Field";
import { Status } from "@/ui/Status";
import { Time } from "@/ui/Time";

/** The branches of a thread as a tree, any of which can be put beside it. */
export function Branches({ thread, with: other, onCompare }: { thread: string; with?: string; onCompare(thread: string): void }) {
  const family = useQuery({ queryKey: ["family", thread], queryFn: () => api.get("/v1/threads/{thread}/family", { path: { thread } }) });
  const [id, setId] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (id.trim()) onCompare(id.trim());
  };
  if (family.error) return <Failed error={family.error} again={() => void family.refetch()} />;
  if (!family.data) return <Loading what="the branches" />;
  const branches = branchesOf(family.data.members, thread);
  return (
    <div className="space-y-4 p-4">
      <ul aria-label="Branches" className="space-y-1">
        {branches.map(({ member, depth }) => (
          <li
            key={member.id}
            aria-current={member.id === thread ? "true" : undefined}
            className={cx("flex flex-wrap items-center gap-x-2 gap-y-1 rounded border bg-panel px-3 py-1.5", member.id === thread ? "border-accent" : "border-line")}
            style={{ marginLeft: `${Math.min(depth, 8) * 1.25}rem` }}
          >
            {depth > 0 && <GitFork aria-hidden className="size-3.5 text-faint" />}
            <Status status={member.status} />
            <Link to="/threads/$thread/travel" params={{ thread: member.id }} search={{}} className="truncate text-accent hover:underline">
              <bdi>{oneLine(member.title || member.id, 80)}</bdi>
            </Link>
            <bdi className="truncate font-mono text-xs text-faint">{oneLine(member.id, 40)}</bdi>
            <span className="text-xs text-soft">
              {depth > 0 ? `forked at ${count(member.at ?? 0)}, ` : ""}
              <Time at={member.created} />
            </span>
            {member.id !== thread && (
              <Button size="small" className="ml-auto" icon={<ArrowLeftRight aria-hidden />} aria-label={`Compare with ${member.id}`} disabled={member.id === other} onClick={() => onCompare(member.id)}>
                Compare
              </Button>
            )}
          </li>
        ))}
      </ul>
      {branches.length < 2 && <p className="text-soft">This thread has no forks. Go to any point of it and fork it there.</p>}
      {family.data.more && <p className="text-soft">There are more branches than are shown.</p>}
      <form className="max-w-xl" onSubmit={submit}>
        <Field label="Compare with any other thread">
          {(ids) => (
            <div className="flex gap-2">
              <Input {...ids} value={id} onChange={(e) => setId(e.target.value)} placeholder="its id" spellCheck={false} autoComplete="off" />
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
