import { ServerOff } from "lucide-react";
import { useWorkers } from "@/api/queries";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";

export default function Operations() {
  const workers = useWorkers();
  const live = workers.data?.workers ?? [];
  return (
    <Page title="Operations">
      <div className="min-h-0 flex-1 space-y-4 overflow-y-auto p-4">
        {workers.error && <Failed error={workers.error} again={() => void workers.refetch()} />}
        {workers.isPending && <Loading what="the workers" />}
        {workers.data && live.length === 0 && (
          <Empty icon={<ServerOff aria-hidden />} title="No worker is alive" command="perdure worker --store URL">
            Runs wait in their queues until a worker takes them.
          </Empty>
        )}
        {live.length > 0 && (
          <Panel title="Workers">
            <Table label="Workers" head={["Worker", "Host", "Process", "Flows", "Started"]}>
              {live.map((worker) => (
                <Row key={worker.id}>
                  <Cell className="font-mono text-xs">{worker.id.slice(0, 8)}</Cell>
                  <Cell>
                    <Line text={worker.host ?? ""} />
                  </Cell>
                  <Cell className="tabular-nums">{worker.pid}</Cell>
                  <Cell>
                    <Line text={(worker.flows ?? []).join(", ")} />
                  </Cell>
                  <Cell>{worker.started && <Time at={worker.started} />}</Cell>
                </Row>
              ))}
            </Table>
          </Panel>
        )}
      </div>
    </Page>
  );
}
