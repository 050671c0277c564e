import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { LayoutList } from "lucide-react";
import { api } from "@/api/client";
import { keys } from "@/api/queries";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";

export default function Threads() {
  const threads = useQuery({ queryKey: keys.threads(), queryFn: () => api.get("/v1/threads") });
  const known = threads.data?.threads ?? [];
  return (
    <Page title="Threads">
      <div className="min-h-0 flex-1 overflow-y-auto p-4">
        {threads.error && <Failed error={threads.error} again={() => void threads.refetch()} />}
        {threads.isPending && <Loading what="the threads" />}
        {threads.data && known.length === 0 && (
          <Empty icon={<LayoutList aria-hidden />} title="There are no threads yet" command={'perdure run research "How can a cache be kept from serving stale data?"'}>
            A thread is everything that one conversation or job has done. This command starts one.
          </Empty>
        )}
        {known.length > 0 && (
          <Panel>
            <Table label="Threads" head={["Status", "Thread", "Flow", "Changed"]}>
              {known.map((thread) => (
                <Row key={thread.id}>
                  <Cell>
                    <Status status={thread.status} asks={thread.asks} />
                  </Cell>
                  <Cell>
                    <Link to="/threads/$thread" params={{ thread: thread.id }} className="text-accent hover:underline">
                      <Line text={thread.title ?? thread.id} />
                    </Link>
                  </Cell>
                  <Cell>
                    <Line text={thread.flow ?? ""} />
                  </Cell>
                  <Cell>
                    <Time at={thread.updated} />
                  </Cell>
                </Row>
              ))}
            </Table>
          </Panel>
        )}
      </div>
    </Page>
  );
}
