import { Link } from "@tanstack/react-router";
import { CalendarClock, Pencil, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { api, type Schemas } from "@/api/client";
import { useCan } from "@/api/queries";
import type { Tone } from "@/lib/status";
import { count, oneLine } from "@/lib/text";
import { Button, firstClick } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Badge } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useDoing, useSchedules } from "./queries";
import { DeleteSchedule, ScheduleDialog } from "./ScheduleDialog";

type Schedule = Schemas["Schedule"];

/** Flows that start at given times. */
export function Schedules() {
  const list = useSchedules();
  const mayRun = useCan("run");
  const pause = useDoing(
    () => "The schedule is paused",
    "The schedule could not be paused",
    (schedule: string) => api.post("/v1/schedules/{schedule}/pause", { path: { schedule } }),
  );
  const resume = useDoing(
    () => "The schedule continues",
    "The schedule could not be resumed",
    (schedule: string) => api.post("/v1/schedules/{schedule}/resume", { path: { schedule } }),
  );
  const run = useDoing(
    () => "A run has started",
    "No run could be started",
    (schedule: string) => api.post("/v1/schedules/{schedule}/trigger", { path: { schedule } }),
  );
  const [editing, setEditing] = useState<Schedule | "new">();
  const [deleting, setDeleting] = useState<string>();
  const create = mayRun && (
    <Button icon={<Plus aria-hidden />} onClick={() => setEditing("new")}>
      Create a schedule
    </Button>
  );
  const dialogs = (
    <>
      {editing && <ScheduleDialog schedule={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} />}
      {deleting && <DeleteSchedule schedule={deleting} onClose={() => setDeleting(undefined)} />}
    </>
  );
  if (list.error) return <Failed error={list.error} again={() => void list.refetch()} />;
  if (!list.data) return <Loading what="the schedules" />;
  if (list.data.schedules.length === 0)
    return (
      <>
        <Empty icon={<CalendarClock aria-hidden />} title="There are no schedules" command="perdure schedules add NAME FLOW INPUT --cron '0 9 * * MON-FRI'">
          A schedule starts a flow at given times, by a cron expression or every so often.
          {create && <div className="mt-3 flex justify-center">{create}</div>}
        </Empty>
        {dialogs}
      </>
    );
  return (
    <Panel title="Schedules" actions={create}>
      <Table label="Schedules" head={["Schedule", "Starts", "State", "Next", "Last", ""]}>
        {list.data.schedules.map((one) => (
          <Row key={one.id}>
            <Cell className="max-w-60 font-medium">
              <Line text={one.id} />
            </Cell>
            <Cell className="max-w-60">
              <div className="flex">
                <Line text={one.flow} />
              </div>
              <div className="flex text-xs text-soft">
                <Line text={timesOf(one)} />
              </div>
            </Cell>
            <Cell>
              <State of={one} />
            </Cell>
            <Cell className="whitespace-nowrap">
              <Next of={one} />
            </Cell>
            <Cell className="max-w-60">
              <Last of={one} />
            </Cell>
            <Cell className="text-right whitespace-nowrap">
              {mayRun && (
                <div className="flex items-center justify-end gap-1">
                  <Button size="small" look="quiet" aria-label={`Run ${one.id} now`} onClick={firstClick(() => run.mutate(one.id))}>
                    Run now
                  </Button>
                  {one.paused ? (
                    <Button size="small" aria-label={`Resume ${one.id}`} onClick={firstClick(() => resume.mutate(one.id))}>
                      Resume
                    </Button>
                  ) : (
                    <Button size="small" aria-label={`Pause ${one.id}`} onClick={firstClick(() => pause.mutate(one.id))}>
                      Pause
                    </Button>
                  )}
                  <Button size="small" look="quiet" icon={<Pencil aria-hidden />} aria-label={`Change ${one.id}`} onClick={() => setEditing(one)} />
                  <Button size="small" look="quiet" icon={<Trash2 aria-hidden />} aria-label={`Delete ${one.id}`} onClick={() => setDeleting(one.id)} />
                </div>
              )}
            </Cell>
          </Row>
        ))}
      </Table>
      {dialogs}
    </Panel>
  );
}

const timesOf = (one: Schedule) => (one.every ? `every ${one.every}` : `${one.cron ?? ""} ${one.zone ?? "UTC"}`);

function State({ of: one }: { of: Schedule }) {
  const [word, tone]: [string, Tone] = one.paused
    ? ["paused", "idle"]
    : one.error
      ? ["failing", "bad"]
      : one.next.length || one.queued?.length
        ? ["active", "work"]
        : ["ended", "done"];
  return (
    <>
      <Badge tone={tone}>{word}</Badge>
      {one.error && (
        <p className="outside text-xs text-bad">
          {oneLine(one.error, 200)}
          {one.since && (
            <>
              {" "}
              since <Time at={one.since} />
            </>
          )}
        </p>
      )}
    </>
  );
}

/** The next five firings; nothing while it is paused. */
function Next({ of: one }: { of: Schedule }) {
  if (one.paused) return null;
  return (
    <ol aria-label={`Next firings of ${one.id}`} className="py-1.5 text-xs">
      {one.next.map((at, n) => (
        <li key={at} className={n ? "text-faint" : undefined}>
          <Time at={at} />
        </li>
      ))}
    </ol>
  );
}

function Last({ of: one }: { of: Schedule }) {
  const last = one.recent?.[0];
  if (!last) return <span className="text-faint">none yet</span>;
  return (
    <>
      {last.thread ? (
        <Link to="/threads/$thread" params={{ thread: last.thread }} className="text-accent hover:underline">
          {last.outcome} <Time at={last.made} />
        </Link>
      ) : (
        <span title={last.error}>
          {last.outcome} <Time at={last.made} />
        </span>
      )}
      <p className="text-xs text-faint">{count(one.fired)} started</p>
    </>
  );
}
