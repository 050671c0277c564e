import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useMemo } from "react";
import { api, Problem, type Schemas } from "@/api/client";
import { useFlows, useWrite } from "@/api/queries";
import { useDraft } from "@/app/draft";
import { FaultList, useValue, type ValueDraft, Views } from "@/asks/ValueEditor";
import { jsonFault } from "@/lib/exact";
import { type Flow, inputSchema } from "@/lib/flow";
import { failureText } from "@/lib/lost";
import { own } from "@/lib/own";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Dialog } from "@/ui/Dialog";
import { Field, Input, Select } from "@/ui/Field";
import { SchemaForm } from "@/ui/SchemaForm";
import { say } from "@/ui/Toast";
import { opsKeys, useDoing } from "./queries";

type Schedule = Schemas["Schedule"];
type Put = Schemas["PutSchedule"];

/** What a schedule says that a form does not show, and an edit must not lose. */
const kept = ({ start, until, max, thread, user, metadata, budget, paused }: Schedule): Partial<Put> => ({ start, until, max, thread, user, metadata, budget, paused });

/** A schedule as it is now, if there is one. */
const current = (id: string) =>
  api.get("/v1/schedules/{schedule}", { path: { schedule: id } }).catch((error: unknown) => {
    if (error instanceof Problem && error.type === "no-schedule") return undefined;
    throw error;
  });

/** Refuses to replace what the person at the form has not seen. */
function refuseOverwriting(id: string, seen: Schedule | undefined, now: Schedule | undefined) {
  if (!seen && now) throw new Error(`There is a schedule ${id} already. Take another name, or change that one.`);
  if (seen && !now) throw new Error(`${id} was deleted meanwhile. Create a schedule if there should be one.`);
  if (seen?.updated !== now?.updated) throw new Error(`${id} was changed meanwhile. Cancel, look at it as it is now, and change it again.`);
}

interface Draft {
  flow?: string;
  by?: "cron" | "every";
  input?: ValueDraft;
  /** The other fields, by name. */
  fields?: Record<string, string>;
  /** The schedule as it was when someone began to change it. */
  updated?: string;
}

/** Creates a schedule, or changes one. What was begun is there again when the dialog opens, unless it was cancelled. */
export function ScheduleDialog({ schedule, onClose }: { schedule?: Schedule; onClose(): void }) {
  const client = useQueryClient();
  const flows = useFlows();
  const known: Flow[] = flows.data?.flows ?? [];
  const [draft, setDraft] = useDraft<Draft>(schedule ? `schedule ${schedule.id}` : "new schedule");
  const change = (more: Draft) => setDraft((before) => ({ updated: schedule?.updated, ...before, ...more }));
  const flow = draft?.flow ?? schedule?.flow ?? known[0]?.name ?? "";
  const by = draft?.by ?? (schedule?.every ? "every" : "cron");
  const first = (name: "id" | "every" | "cron" | "zone" | "overlap" | "catch_up" | "title") => own(draft?.fields, name) ?? schedule?.[name];
  const schema = useMemo(() => {
    const one = known.find(({ name }) => name === flow);
    return one && inputSchema(one);
  }, [flows.data, flow]);
  const input = useValue(schema, schedule?.flow === flow ? schedule.input : undefined, draft?.input, (next) => change({ input: next }));
  const view = schema ? input.view : "json";
  const broken = view === "json" && input.text.trim() !== "" && input.value === undefined && jsonFault(input.text);
  const put = useWrite({
    mutationFn: async ({ id, body }: { id: string; body: Put }) => {
      refuseOverwriting(id, schedule && { ...schedule, updated: draft?.updated ?? schedule.updated }, await current(id));
      return api.put("/v1/schedules/{schedule}", { path: { schedule: id }, body });
    },
    onSuccess: (made) => {
      setDraft(undefined);
      say(schedule ? `${made.id} is changed` : `${made.id} is there`);
      void client.invalidateQueries({ queryKey: opsKeys.schedules() });
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    input.setShown(true);
    if (broken || (schema && input.faults.size)) return;
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim() || undefined;
    const times = by === "cron" ? { cron: text("cron"), zone: text("zone") } : { every: text("every") };
    const rest = { title: text("title"), overlap: text("overlap") as Put["overlap"], catch_up: text("catch_up") as Put["catch_up"] };
    const most = rest.catch_up === "all" ? { catch_up_max: schedule?.catch_up_max } : {};
    put.mutate({ id: schedule?.id ?? text("id") ?? "", body: { ...(schedule && kept(schedule)), flow, input: input.value, ...times, ...rest, ...most } }, { onSuccess: onClose });
  };
  const problem = failureText(put.error, "Look at the list before you send it again.");
  return (
    <Dialog
      open
      onClose={onClose}
      title={schedule ? `Change ${schedule.id}` : "Create a schedule"}
      about="It starts a flow at given times, once each, whichever worker is there."
      actions={
        <>
          <Button
            onClick={() => {
              setDraft(undefined);
              onClose();
            }}
          >
            Cancel
          </Button>
          <Button look="main" type="submit" form="schedule" disabled={!!broken || !flow} busy={put.isPending && "Saving …"}>
            {schedule ? "Save" : "Create"}
          </Button>
        </>
      }
    >
      <form
        id="schedule"
        className="space-y-3"
        onSubmit={submit}
        onChange={(event) => {
          const { name, value } = event.target as unknown as HTMLInputElement;
          if (name) setDraft((before) => ({ updated: schedule?.updated, ...before, fields: { ...before?.fields, [name]: value } }));
        }}
      >
        {!schedule && (
          <Field label="Name" required hint="Letters, digits, and - _ .">
            {(ids) => <Input {...ids} name="id" defaultValue={first("id")} required pattern="[A-Za-z0-9._\-]{1,100}" autoFocus autoComplete="off" spellCheck={false} />}
          </Field>
        )}
        <Field label="Flow">
          {(ids) => (
            <Select
              {...ids}
              value={flow}
              onChange={(e) => change({ flow: e.target.value, input: undefined })}
            >
              {[...new Set([...known.map(({ name }) => name), ...(flow ? [flow] : [])])].map((name) => (
                <option key={name}>{name}</option>
              ))}
            </Select>
          )}
        </Field>
        <div className="grid grid-cols-2 gap-3">
          <Field label="Times">
            {(ids) => (
              <Select {...ids} value={by} onChange={(e) => change({ by: e.target.value as "cron" | "every" })}>
                <option value="cron">by a cron expression</option>
                <option value="every">every so often</option>
              </Select>
            )}
          </Field>
          {by === "every" ? (
            <Field label="Every" required hint="Such as 15m, 12h or 7d.">
              {(ids) => <Input {...ids} name="every" required defaultValue={first("every")} autoComplete="off" spellCheck={false} />}
            </Field>
          ) : (
            <Field label="Cron" required hint="Minute, hour, day, month, weekday.">
              {(ids) => <Input {...ids} name="cron" required defaultValue={first("cron")} placeholder="0 9 * * MON-FRI" className="font-mono" autoComplete="off" spellCheck={false} />}
            </Field>
          )}
        </div>
        {by === "cron" && (
          <Field label="Time zone" hint="Such as Europe/Berlin; empty means UTC.">
            {(ids) => <Input {...ids} name="zone" defaultValue={first("zone")} autoComplete="off" spellCheck={false} />}
          </Field>
        )}
        <div role="group" aria-label="Input" className="space-y-2">
          <div className="flex items-center gap-3">
            <p className="flex-1 font-medium">Input</p>
            {schema && <Views view={input.view} setView={input.setView} broken={broken} />}
          </div>
          {view === "form" ? (
            <SchemaForm schema={schema} value={input.value} onChange={input.setValue} faults={input.shown ? input.faults : new Map()} />
          ) : (
            <Code label="Input as JSON" value={input.text} onChange={input.setText} height="8rem" />
          )}
          {view === "json" && (input.shown || broken) && <FaultList faults={schema ? input.faults : new Map()} broken={broken} />}
        </div>
        <Field label="If the last run has not ended">
          {(ids) => (
            <Select {...ids} name="overlap" defaultValue={first("overlap") ?? "skip"}>
              <option value="skip">leave it out</option>
              <option value="allow">start another beside it</option>
              <option value="queue">start when it has ended</option>
              <option value="cancel">cancel it and start</option>
            </Select>
          )}
        </Field>
        <Field label="If a time was missed">
          {(ids) => (
            <Select {...ids} name="catch_up" defaultValue={first("catch_up") ?? "last"}>
              <option value="last">make up for the last one</option>
              <option value="skip">leave it out</option>
              <option value="all">make up for all</option>
            </Select>
          )}
        </Field>
        <Field label="Title of new threads">{(ids) => <Input {...ids} name="title" dir="auto" defaultValue={first("title")} autoComplete="off" />}</Field>
        {problem && (
          <p role="alert" className="outside text-bad">
            {problem}
          </p>
        )}
      </form>
    </Dialog>
  );
}

export function DeleteSchedule({ schedule, onClose }: { schedule: string; onClose(): void }) {
  const remove = useDoing(
    () => `${schedule} is deleted`,
    "The schedule could not be deleted",
    () => api.delete("/v1/schedules/{schedule}", { path: { schedule } }),
  );
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Delete ${schedule}?`}
      about="It starts nothing any more. The threads that it has started stay, and so do their runs."
      actions={
        <>
          <Button onClick={onClose}>Keep it</Button>
          <Button look="danger" busy={remove.isPending && "Deleting …"} onClick={() => remove.mutate(undefined, { onSuccess: onClose })}>
            Delete
          </Button>
        </>
      }
    />
  );
}
