import { Link } from "@tanstack/react-router";
import { CircleCheck, RotateCw, Stethoscope } from "lucide-react";
import { useState } from "react";
import { api } from "@/api/client";
import { useCan } from "@/api/queries";
import { Button } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
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
        <Table label="Runs that need attention" head={["Status", "Thread", "Flow", "Since", ""]}>
          {threads.map((thread) => (
            <Row key={thread.id}>
              <Cell>
                <Status status={thread.status} />
              </Cell>
              <Cell className="max-w-80">
                <Link to="/threads/$thread" params={{ thread: thread.id }} className="flex text-accent hover:underline">
                  <Line text={thread.title || thread.id} />
                </Link>
              </Cell>
              <Cell>
                <Line text={thread.flow ?? ""} />
              </Cell>
              <Cell className="whitespace-nowrap">
                <Time at={thread.updated} />
              </Cell>
              <Cell>
                <div className="flex justify-end gap-2">
                  {thread.status !== "damaged" && (
                    <Button size="small" icon={<Stethoscope aria-hidden />} aria-label={`Post-mortem of ${thread.id}`} onClick={() => setOpen(thread.id)}>
                      Post-mortem
                    </Button>
                  )}
                  {mayRun && thread.status !== "damaged" && (
                    <Button
                      size="small"
                      icon={<RotateCw aria-hidden />}
                      aria-label={`Retry ${thread.id}`}
                      busy={retry.isPending && retry.variables === thread.id && "Retrying …"}
                      onClick={() => retry.mutate(thread.id)}
                    >
                      Retry
                    </Button>
                  )}
                </div>
              </Cell>
            </Row>
          ))}
        </Table>
      </Panel>
      {more && <p className="text-soft">There are more. The list of threads shows all of them, by status.</p>}
      {open && <PostMortemDialog thread={open} onClose={() => setOpen(undefined)} onRetry={mayRun ? () => retry.mutate(open) : undefined} />}
    </>
  );
}
