import { Link } from "@tanstack/react-router";
import { ServerOff } from "lucide-react";
import { useStats, useWorkers } from "@/api/queries";
import type { Status as StatusName } from "@/lib/status";
import { statuses } from "@/lib/status";
import { count } from "@/lib/text";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Badge, Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useWorking } from "./queries";

/** Who executes runs, what they execute, and what waits for them. */
export function Workers() {
  const workers = useWorkers();
  const live = workers.data?.workers ?? [];
  const hosts = live.some((worker) => worker.host !== undefined); // not everyone may see them
  return (
    <>
      {workers.error && <Failed error={workers.error} again={() => void workers.refetch()} />}
      {workers.isPending && <Loading what="the workers" />}
      {workers.data && live.length === 0 && (
        <Empty icon={<ServerOff aria-hidden />} title="No worker is alive" command="perdure worker --store URL">
          Runs wait in their queues until a worker takes them.
        </Empty>
      )}
      {live.length > 0 && (
        <Panel title="Workers">
          <Table label="Workers" head={["Worker", ...(hosts ? ["Host", "Process"] : []), "Code", "Flows", "Since", "Lease ends"]}>
            {live.map((worker) => (
              <Row key={worker.id}>
                <Cell className="font-mono text-xs" title={worker.id}>
                  {worker.id.slice(0, 8)}
                </Cell>
                {hosts && (
                  <>
                    <Cell>
                      <Line text={worker.host ?? ""} />
                    </Cell>
                    <Cell className="tabular-nums">{worker.pid}</Cell>
                  </>
                )}
                <Cell className="font-mono text-xs" title={worker.version}>
                  {worker.version?.slice(0, 8)}
                </Cell>
                <Cell>
                  <span className="flex flex-wrap gap-1 py-1.5">
                    {(worker.flows ?? []).map((flow) => (
                      <Badge key={flow}>
                        <bdi>{flow}</bdi>
                      </Badge>
                    ))}
                    {worker.more && <span className="text-faint">and more</span>}
                  </span>
                </Cell>
                <Cell className="whitespace-nowrap">{worker.started && <Time at={worker.started} />}</Cell>
                <Cell className="whitespace-nowrap">{worker.until && <Time at={worker.until} />}</Cell>
              </Row>
            ))}
          </Table>
          <p className="border-t border-line px-4 py-2 text-xs text-soft">A worker renews its lease while it lives. When a lease ends, others take over what its worker was doing.</p>
        </Panel>
      )}
      <Queues />
      <Working until={new Map(live.map((worker) => [worker.id, worker.until]))} />
    </>
  );
}

/** How many threads there are in each status. */
function Queues() {
  const { data: stats } = useStats();
  if (!stats) return null;
  const known = statuses.filter((status) => stats.statuses[status]);
  return (
    <Panel title="Threads by status">
      {known.length === 0 ? (
        <p className="px-4 py-3 text-soft">There are no threads yet.</p>
      ) : (
        <ul className="flex flex-wrap gap-x-6 gap-y-2 px-4 py-3">
          {known.map((status) => (
            <li key={status}>
              <Link to="/threads" search={{ status }} className="flex items-center gap-2 rounded hover:underline">
                <Status status={status as StatusName} />
                <span className="tabular-nums">{count(stats.statuses[status] ?? 0)}</span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Working({ until }: { until: ReadonlyMap<string, string | undefined> }) {
  const working = useWorking();
  const threads = working.data?.threads ?? [];
  if (!threads.length) return null;
  return (
    <Panel title="Being executed now">
      <Table label="Being executed now" head={["Thread", "Flow", "Step", "Worker", "Held until", "Last change"]}>
        {threads.map((thread) => (
          <Row key={thread.id}>
            <Cell className="max-w-80">
              <Link to="/threads/$thread" params={{ thread: thread.id }} className="flex text-accent hover:underline">
                <Line text={thread.title || thread.id} />
              </Link>
            </Cell>
            <Cell>
              <Line text={thread.flow ?? ""} />
            </Cell>
            <Cell className="max-w-80 font-mono text-xs">
              <Line text={thread.why?.step ?? ""} />
            </Cell>
            <Cell className="font-mono text-xs" title={thread.why?.worker}>
              {thread.why?.worker?.slice(0, 8)}
            </Cell>
            <Cell className="whitespace-nowrap">
              {thread.why?.worker && <Held until={until.get(thread.why.worker)} />}
            </Cell>
            <Cell className="whitespace-nowrap">
              <Time at={thread.updated} />
            </Cell>
          </Row>
        ))}
      </Table>
    </Panel>
  );
}

/** Until when a worker may keep what it executes. */
const Held = ({ until }: { until: string | undefined }) => (until ? <Time at={until} /> : <span className="text-soft">its worker is gone</span>);
