import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { ArrowLeft, Bot, MessagesSquare, Play, Workflow } from "lucide-react";
import { useCan, useFlows } from "@/api/queries";
import { cx } from "@/lib/cx";
import type { Flow } from "@/lib/flow";
import { oneLine } from "@/lib/text";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Line } from "@/ui/Text";
import { StartForm } from "./StartForm";

/** Starts a flow. */
export default function Start() {
  const flows = useFlows();
  const may = useCan("run");
  const { flow: named } = useSearch({ strict: false }) as { flow?: string };
  const navigate = useNavigate();
  const known: Flow[] = flows.data?.flows ?? [];
  const flow = known.find((one) => one.name === named);
  return (
    <Page title="Start">
      {flows.error && <Failed error={flows.error} again={() => void flows.refetch()} />}
      {flows.isPending && <Loading what="the flows" />}
      {flows.data && known.length === 0 && (
        <Empty icon={<Play aria-hidden />} title="No flow can be started" command="perdure init">
          Flows come from the programs that work on the store. This command begins one.
        </Empty>
      )}
      {known.length > 0 && (
        <div className="min-h-0 flex-1 overflow-y-auto md:flex">
          <ul aria-label="Flows" className={cx("border-line md:w-72 md:shrink-0 md:overflow-y-auto md:border-r", flow && "max-md:hidden")}>
            {known.map((one) => (
              <li key={one.name} className={cx("flex items-center border-b border-line", one.name === flow?.name ? "bg-selected" : "hover:bg-hover")}>
                <button
                  type="button"
                  aria-current={one.name === flow?.name || undefined}
                  onClick={() => void navigate({ to: "/start", search: { flow: one.name }, replace: !!named })}
                  className="flex min-h-11 min-w-0 flex-1 items-center gap-2 px-4 text-left -outline-offset-2"
                >
                  {one.agent ? <Bot aria-hidden className="size-4 shrink-0 text-faint" /> : <Workflow aria-hidden className="size-4 shrink-0 text-faint" />}
                  <Line text={one.name} className="font-medium" />
                  {one.agent && <span className="text-xs text-faint">agent</span>}
                </button>
                {may && one.agent && (
                  <Link to="/chat/$flow" params={{ flow: one.name }} title={`Chat with ${one.name}`} className="mr-2 flex h-8 items-center gap-1 rounded px-2 text-xs text-accent hover:bg-hover">
                    <MessagesSquare aria-hidden className="size-4" />
                    Chat
                  </Link>
                )}
              </li>
            ))}
          </ul>
          <div className="min-w-0 flex-1 md:overflow-y-auto">
            {flow && (
              <Link to="/start" search={{}} className="flex min-h-11 items-center gap-1 px-4 text-accent md:hidden">
                <ArrowLeft aria-hidden className="size-4" />
                All flows
              </Link>
            )}
            {flow ? (
              <StartForm key={flow.name} flow={flow} may={may} />
            ) : named ? (
              <Empty icon={<Play aria-hidden />} title={`There is no flow ${oneLine(named, 80)}`}>
                None of the programs that work on the store has it. Choose another one.
              </Empty>
            ) : (
              <Empty icon={<Play aria-hidden />} title="Choose a flow" command={`perdure run ${known[0]?.name ?? "FLOW"} "…"`}>
                Its form comes from the type of its input. The same in a terminal:
              </Empty>
            )}
          </div>
        </div>
      )}
    </Page>
  );
}
