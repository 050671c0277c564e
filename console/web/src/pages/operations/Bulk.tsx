import { useMutation } from "@tanstack/react-query";
import { Layers } from "lucide-react";
import { useState } from "react";
import { api, type Schemas } from "@/api/client";
import { useCan } from "@/api/queries";
import { failureText } from "@/lib/lost";
import { type Status as StatusName, statuses } from "@/lib/status";
import { count, many, oneLine } from "@/lib/text";
import { Button, firstClick } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Field, Input, Select } from "@/ui/Field";
import { Badge } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { moving, useBulk, useDoing } from "./queries";

/** Jobs that do one thing to many threads. */
export function BulkJobs() {
  const bulk = useBulk();
  const mayRun = useCan("run");
  const [starting, setStarting] = useState(false);
  const stop = useDoing(
    (job: Schemas["Bulk"]) => `The job stops after ${many(job.done, "thread")}`,
    "The job could not be stopped",
    (job: string) => api.post("/v1/bulk/{job}/stop", { path: { job } }),
  );
  const resume = useDoing(
    () => "The job continues",
    "The job could not be continued",
    (job: string) => api.post("/v1/bulk/{job}/resume", { path: { job } }),
  );
  if (bulk.error) return <Failed error={bulk.error} again={() => void bulk.refetch()} />;
  if (!bulk.data) return <Loading what="the bulk jobs" />;
  const jobs = bulk.data.jobs;
  const begin = mayRun && (
    <Button size="small" onClick={() => setStarting(true)}>
      Begin a job
    </Button>
  );
  return (
    <>
      {jobs.length === 0 ? (
        <>
          <Empty icon={<Layers aria-hidden />} title="There are no bulk jobs" command="perdure bulk retry --status failed --dry-run">
            A job cancels, retries, archives, exports or erases all threads that a filter selects. Jobs of the last 30 days appear here.
          </Empty>
          <div className="flex justify-center">{begin}</div>
        </>
      ) : (
        <Panel title="Bulk jobs" actions={begin}>
          <Table label="Bulk jobs" head={["What", "Threads", "State", "Done", "Begun", ""]}>
            {jobs.map((job) => (
              <Row key={job.id}>
                <Cell className="font-medium">{job.verb}</Cell>
                <Cell className="max-w-80">
                  <Line text={filterText(job.filter)} />
                </Cell>
                <Cell>
                  <Badge tone={moving(job) ? "work" : job.failed > 0 ? "bad" : job.state === "stopped" ? "idle" : "done"}>{job.state}</Badge>
                </Cell>
                <Cell>
                  <Progress job={job} />
                </Cell>
                <Cell className="whitespace-nowrap">
                  <Time at={job.created} />
                  {job.by && <bdi className="text-faint"> by {oneLine(job.by, 40)}</bdi>}
                </Cell>
                <Cell className="text-right">
                  {mayRun && moving(job) && (
                    <Button size="small" onClick={firstClick(() => stop.mutate(job.id))}>
                      Stop
                    </Button>
                  )}
                  {mayRun && job.state === "stopped" && (
                    <Button size="small" onClick={firstClick(() => resume.mutate(job.id))}>
                      Continue
                    </Button>
                  )}
                </Cell>
              </Row>
            ))}
          </Table>
        </Panel>
      )}
      {starting && <BeginDialog onClose={() => setStarting(false)} />}
    </>
  );
}

const Progress = ({ job }: { job: Schemas["Bulk"] }) => (
  <span className="tabular-nums" title={(job.errors ?? []).map((e) => `${e.thread ?? ""} ${e.error}`).join("\n") || undefined}>
    {count(job.done)} done
    {job.skipped > 0 && <span className="text-soft">, {count(job.skipped)} left alone</span>}
    {job.failed > 0 && <span className="text-bad">, {count(job.failed)} failed</span>}
  </span>
);

function filterText(filter: Schemas["ListOptions"]): string {
  const parts = [
    filter.status && `status ${filter.status}`,
    filter.flow && `flow ${filter.flow}`,
    filter.user && `of ${filter.user}`,
    filter.asks && "with open asks",
    filter.updated_before && `unchanged since ${filter.updated_before.slice(0, 10)}`,
    filter.created_before && `created before ${filter.created_before.slice(0, 10)}`,
    ...Object.entries(filter.metadata ?? {}).map(([key, value]) => `${key}=${value}`),
  ].filter(Boolean);
  return parts.length ? parts.join(", ") : "all threads";
}

const verbs = ["retry", "cancel", "archive", "export", "erase"] as const;
type Verb = (typeof verbs)[number];
const adminOnly: Verb[] = ["archive", "export", "erase"];

/** Looks what a job would find, and begins it. */
function BeginDialog({ onClose }: { onClose(): void }) {
  const admin = useCan("admin");
  const [verb, setVerb] = useState<Verb>("retry");
  const [status, setStatus] = useState<StatusName>("failed");
  const [flow, setFlow] = useState("");
  const [plan, setPlan] = useState<Schemas["BulkPlan"]>();
  const filter = { status: status || undefined, flow: flow.trim() || undefined };
  const request = { verb, filter, all: filter.status || filter.flow ? undefined : true };
  const look = useMutation({ mutationFn: () => api.post("/v1/bulk/plan", { body: request }), onSuccess: setPlan });
  const begin = useDoing(
    () => "The job has begun",
    "The job could not begin",
    () => api.post("/v1/bulk", { body: request }),
  );
  const change = <T,>(set: (value: T) => void) => (value: T) => {
    set(value);
    setPlan(undefined);
  };
  const error = look.error ?? begin.error;
  return (
    <Dialog
      open
      onClose={onClose}
      title="Begin a bulk job"
      about="It does one thing to all threads that the filter selects, in the background. Threads that change after it began are left alone."
      actions={
        <>
          <Button busy={look.isPending && "Looking …"} onClick={() => look.mutate()}>
            Look what it finds
          </Button>
          <Button look={verb === "erase" ? "danger" : "main"} disabled={!plan || plan.threads === 0} busy={begin.isPending && "Beginning …"} onClick={() => begin.mutate(undefined, { onSuccess: onClose })}>
            {plan ? `${verb} ${many(plan.threads, "thread")}` : verb}
          </Button>
        </>
      }
    >
      <Field label="What to do to each thread">
        {(ids) => (
          <Select {...ids} value={verb} onChange={(e) => change(setVerb)(e.target.value as Verb)}>
            {verbs
              .filter((one) => admin || !adminOnly.includes(one))
              .map((one) => (
                <option key={one}>{one}</option>
              ))}
          </Select>
        )}
      </Field>
      <Field label="Status">
        {(ids) => (
          <Select {...ids} value={status} onChange={(e) => change(setStatus)(e.target.value as StatusName)}>
            <option value="">any</option>
            {statuses.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </Select>
        )}
      </Field>
      <Field label="Flow" hint="Empty means any.">
        {(ids) => <Input {...ids} value={flow} onChange={(e) => change(setFlow)(e.target.value)} spellCheck={false} />}
      </Field>
      {plan && (
        <div role="status" className="rounded bg-sunken px-3 py-2">
          <p>{plan.threads === 0 ? "No thread fits." : `${many(plan.threads, "thread")} ${plan.threads === 1 ? "fits" : "fit"} now.`}</p>
          <ul className="text-xs text-soft">
            {plan.first.slice(0, 5).map((thread) => (
              <li key={thread.id}>
                <Line text={thread.title || thread.id} />
              </li>
            ))}
            {plan.threads > 5 && <li>and others</li>}
          </ul>
        </div>
      )}
      {error && (
        <p role="alert" className="outside text-bad">
          {failureText(error, "Look at the list of jobs before you begin it again.")}
        </p>
      )}
    </Dialog>
  );
}
