import { Link } from "@tanstack/react-router";
import { Inbox as Icon } from "lucide-react";
import { useAsks } from "@/api/queries";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";

export default function Inbox() {
  const asks = useAsks();
  const open = asks.data?.asks ?? [];
  return (
    <Page title="Inbox">
      <div className="min-h-0 flex-1 overflow-y-auto p-4">
        {asks.error && <Failed error={asks.error} again={() => void asks.refetch()} />}
        {asks.isPending && <Loading what="what waits for a person" />}
        {asks.data && open.length === 0 && (
          <Empty icon={<Icon aria-hidden />} title="Nothing waits for a person" command={'perdure run procurement "@invoice"'}>
            Questions and approvals of all threads appear here.
          </Empty>
        )}
        {open.length > 0 && (
          <Panel>
            <Table label="Open asks" head={["Question", "Thread", "Asked", "Expires"]}>
              {open.map((ask) => (
                <Row key={ask.id}>
                  <Cell className="max-w-96">
                    <Line text={ask.prompt ?? ask.path ?? ask.id} />
                  </Cell>
                  <Cell>
                    <Link to="/threads/$thread" params={{ thread: ask.thread }} className="font-mono text-xs text-accent hover:underline">
                      <Line text={ask.thread} />
                    </Link>
                  </Cell>
                  <Cell>
                    <Time at={ask.asked} />
                  </Cell>
                  <Cell>{ask.expires ? <Time at={ask.expires} /> : "never"}</Cell>
                </Row>
              ))}
            </Table>
          </Panel>
        )}
      </div>
    </Page>
  );
}
