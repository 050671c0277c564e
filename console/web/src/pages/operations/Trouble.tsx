import { Link } from "@tanstack/react-router";
import { CircleCheck, RotateCw, Stethoscope } from "lucide-react";
import { useState } from "react";
import { api } from "@/api/client";
import { useCan } from "@/api/queries";
import { Button, firstClick } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Status, WhyText } from "@/ui/Status";
import { Panel } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { PostMortemDialog } from "./PostMortem";
import { useDoing, useTrouble } from "./queries";

/** Runs that do not go on by themselves. */
export function Trouble() {
  const trouble = useTrouble();
  const mayRun = useCan("run");
  const [open, setOpen] = useState<string>();
  const retry = useDoing(
    (_, thread: string) => `The run of ${thread} continues`,
    "The run could not be retried",
    (thread: string) => api.post("/v1/threads/{thread}/runs/{run}/retry", { path: { thread, run: "newest" }, body: {} }),
  );
  if (trouble.error) return <Failed error={trouble.error} again={() => void trouble.refetch()} />;
  if (!trouble.data) return <Loading what="what needs attention" />;
  const { threads, more } = trouble.data;
  if (threads.length === 0)
    return (
      <Empty icon={<CircleCheck aria-hidden />} title="Nothing is stuck" command="perdure threads --status failed">
        Runs that failed, were blocked by changed code or were quarantined after killing their workers appear here, with what to do about them.
      </Empty>
    );
  return (
    <>
      <Panel title="Runs that need attention">
        <ul aria-label="Runs that need attention" className="divide-y divide-line">
          {threads.map((thread) => (
            <li key={thread.id} className="flex flex-wrap items-center gap-x-3 gap-y-1.5 px-4 py-2">
              <span className="w-28">
                <Status status={thread.status} />
              </span>
              <Link to="/threads/$thread" params={{ thread: thread.id }} className="flex min-w-0 flex-[1_1_12rem] text-accent hover:underline">
                <Line text={thread.title || thread.id} />
              </Link>
              <span className="flex min-w-0 flex-[0_1_9rem] items-baseline gap-2 text-soft">
                <Line text={thread.flow ?? ""} />
                <Time at={thread.updated} className="shrink-0 text-faint" />
              </span>
              {thread.why && <WhyText why={thread.why} className="flex-[2_1_18rem]" />}
              {thread.status !== "damaged" && (
                <span className="flex gap-2">
                  <Button size="small" icon={<Stethoscope aria-hidden />} aria-label={`Post-mortem of ${thread.id}`} onClick={() => setOpen(thread.id)}>
                    Post-mortem
                  </Button>
                  {mayRun && (
                    <Button
                      size="small"
                      icon={<RotateCw aria-hidden />}
                      aria-label={`Retry ${thread.id}`}
                      busy={retry.isPending && retry.variables === thread.id && "Retrying …"}
                      onClick={firstClick(() => retry.mutate(thread.id))}
                    >
                      Retry
                    </Button>
                  )}
                </span>
              )}
            </li>
          ))}
        </ul>
      </Panel>
      {more && <p className="text-soft">There are more. The list of threads shows all of them, by status.</p>}
      {open && <PostMortemDialog thread={open} onClose={() => setOpen(undefined)} onRetry={mayRun ? () => retry.mutate(open) : undefined} />}
    </>
  );
}
