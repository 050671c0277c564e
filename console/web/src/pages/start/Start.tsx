import { Play } from "lucide-react";
import { useFlows } from "@/api/queries";
import { Command } from "@/ui/Copy";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";

export default function Start() {
  const flows = useFlows();
  const known = flows.data?.flows ?? [];
  return (
    <Page title="Start">
      <div className="min-h-0 flex-1 overflow-y-auto p-4">
        {flows.error && <Failed error={flows.error} again={() => void flows.refetch()} />}
        {flows.isPending && <Loading what="the flows" />}
        {flows.data && known.length === 0 && (
          <Empty icon={<Play aria-hidden />} title="No flow can be started" command="perdure init">
            Flows come from the programs that work on the store. This command begins one.
          </Empty>
        )}
        {known.length > 0 && (
          <Panel>
            <Table label="Flows" head={["Flow", "How to start it"]}>
              {known.map((flow) => (
                <Row key={flow.name}>
                  <Cell className="font-medium">
                    <Line text={flow.name} />
                  </Cell>
                  <Cell className="py-1.5">
                    <Command text={`perdure run ${flow.name} "…"`} />
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
