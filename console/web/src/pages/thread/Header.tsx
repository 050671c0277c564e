import { Link } from "@tanstack/react-router";
import { Ban, CornerUpLeft, Ellipsis, GitFork, History, MessagesSquare, Pause, Play, Repeat, RotateCw } from "lucide-react";
import { type ReactNode, useState } from "react";
import type { Schemas } from "@/api/client";
import { type Control, useCan, useChats, useControl } from "@/api/queries";
import { cliOf } from "@/lib/commands";
import { failure } from "@/lib/lost";
import { controls } from "@/lib/status";
import { compact, dollars, oneLine, shortId } from "@/lib/text";
import { type ThreadRow, whyOf } from "@/lib/threadlist";
import type { Awaited } from "@/lib/timeline";
import { Button } from "@/ui/Button";
import { Copy } from "@/ui/Copy";
import { Dialog } from "@/ui/Dialog";
import { Area, Field, Select } from "@/ui/Field";
import { Menu } from "@/ui/Menu";
import { Status, WhyText } from "@/ui/Status";
import { Line } from "@/ui/Text";
import { Time, Took } from "@/ui/Time";
import { say, sayError } from "@/ui/Toast";
import { useNarrow } from "@/ui/useNarrow";
import { SendSignal } from "./SendSignal";

type Thread = Schemas["Thread"];
type Run = Schemas["Run"];

const verbs: Record<Control, { label: string; icon: ReactNode; about: string; done: string; danger?: boolean }> = {
  pause: { label: "Pause", icon: <Pause aria-hidden />, about: "The run stops before its next step, and stays there until someone resumes it.", done: "The run pauses before its next step" },
  resume: { label: "Resume", icon: <Play aria-hidden />, about: "The run continues where it was paused.", done: "The run continues" },
  cancel: { label: "Cancel", icon: <Ban aria-hidden />, about: "The run ends, after its clean-up steps. What it has already done stays done.", done: "The run is being cancelled", danger: true },
  retry: { label: "Retry", icon: <RotateCw aria-hidden />, about: "The run continues after its failure. Steps that are done are not done again.", done: "The run continues" },
  again: { label: "Run again", icon: <Repeat aria-hidden />, about: "A new run begins on this thread, with the flow and input of this one. Everything is done anew.", done: "A new run has been queued" },
};

interface Props {
  thread: Thread;
  run?: Run;
  /** The signals for which the run waits. */
  awaited: Awaited[];
  onRun(run: string): void;
}

/** What a thread is, how it is, and what can be done about it. */
export function Header({ thread, run, awaited, onRun }: Props) {
  const asks = run?.asks?.length ?? 0;
  const spent = run ? run.spent : thread.spent;
  const chats = useChats(run?.flow);
  const row: ThreadRow = { ...thread, cursor: "", asks, parent: undefined, import: undefined };
  return (
    <header className="shrink-0 space-y-1.5 border-b border-line bg-panel px-4 py-2.5">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <h1 className="min-w-0 text-lg">
          <Line text={thread.title || thread.id} className={thread.title ? undefined : "font-mono text-base"} />
        </h1>
        <Status status={thread.status} asks={asks} />
        <WhyText why={whyOf(row)} className="max-w-full" />
        <SendSignal thread={thread.id} awaited={awaited} />
        <div className="ml-auto flex items-center gap-2">
          {run && <Actions thread={thread} run={run} />}
        </div>
      </div>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-xs text-soft">
        <span className="-ml-2">
          <Copy text={thread.id} label={shortId(thread.id)} what="Copy the id of the thread" />
        </span>
        {run && <span>{run.flow}</span>}
        {thread.user && <span>of {thread.user}</span>}
        <span>
          begun <Time at={run?.created ?? thread.created} />
        </span>
        {run?.started && (
          <span>
            {run.ended ? "took" : "for"} <Took from={run.created} to={run.ended} />
          </span>
        )}
        {spent?.tokens ? <span>{compact(spent.tokens)} tokens</span> : null}
        {spent?.cost ? <span>{dollars(spent.cost)}</span> : null}
        {thread.parent && (
          <Link to="/threads/$thread" params={{ thread: thread.parent.thread }} className="flex items-center gap-1 text-accent hover:underline">
            <CornerUpLeft aria-hidden className="size-3.5" />
            child of {shortId(thread.parent.thread)}
          </Link>
        )}
        {thread.import && <span>imported</span>}
        {thread.fork && !thread.import && (
          <Link to="/threads/$thread" params={{ thread: thread.fork.thread }} className="flex items-center gap-1 text-accent hover:underline">
            <GitFork aria-hidden className="size-3.5" />
            forked from {shortId(thread.fork.thread)} at {thread.fork.seq}
          </Link>
        )}
        <Link to="/threads/$thread/travel" params={{ thread: thread.id }} search={{}} className="flex items-center gap-1 text-accent hover:underline">
          <History aria-hidden className="size-3.5" />
          time travel
        </Link>
        {chats && (
          <Link to="/threads/$thread/chat" params={{ thread: thread.id }} className="flex items-center gap-1 text-accent hover:underline">
            <MessagesSquare aria-hidden className="size-3.5" />
            chat
          </Link>
        )}
        <Runs runs={thread.runs ?? []} run={run} onRun={onRun} />
      </div>
    </header>
  );
}

function Runs({ runs, run, onRun }: { runs: Run[]; run?: Run; onRun(run: string): void }) {
  if (runs.length < 2) return null;
  return (
    <Select aria-label="Run" className="!h-6 !w-auto !text-xs" value={run?.id} onChange={(e) => onRun(e.target.value)}>
      {runs.map((one, at) => (
        <option key={one.id} value={one.id}>
          Run {at + 1} of {runs.length}: {one.flow}, {one.status}
        </option>
      ))}
    </Select>
  );
}

function Actions({ thread, run }: { thread: Thread; run: Run }) {
  const may = useCan("run");
  const narrow = useNarrow();
  const [asked, setAsked] = useState<{ verb: Control; run: Run }>(); // another run may be the newest before it is confirmed
  const fit = controls(run.status);
  if (!may || !(fit.length || asked)) return null;
  return (
    <>
      {narrow ? (
        <Menu
          label="Actions"
          trigger={<Button size="small" icon={<Ellipsis aria-hidden />} aria-label="Actions" />}
          items={fit.map((verb) => ({ label: verbs[verb].label, icon: verbs[verb].icon, danger: verbs[verb].danger, onSelect: () => setAsked({ verb, run }) }))}
        />
      ) : (
        fit.map((verb) => (
          <Button key={verb} size="small" look={verbs[verb].danger ? "danger" : "plain"} icon={verbs[verb].icon} onClick={() => setAsked({ verb, run })}>
            {verbs[verb].label}
          </Button>
        ))
      )}
      {asked && <Confirm {...asked} thread={thread} onClose={() => setAsked(undefined)} />}
    </>
  );
}

function Confirm({ thread, run, verb, onClose }: { thread: Thread; run: Run; verb: Control; onClose(): void }) {
  const [reason, setReason] = useState("");
  const control = useControl(thread.id);
  const { label, about, done, danger } = verbs[verb];
  const runs = thread.runs ?? [];
  const nth = runs.findIndex((one) => one.id === run.id) + 1;
  const which = nth && runs.length > 1 ? `Run ${nth} of ${runs.length}: ${oneLine(run.flow, 80)}. ` : "";
  const act = () =>
    control.mutate(
      { verb, run: run.id, reason },
      {
        onSuccess: () => {
          say(done);
          onClose();
        },
        onError: (error) => sayError(...failure(`${label} did not work`, error, `“${label}”`, "The server does not answer. Look at the run once it does, before you repeat it.")),
      },
    );
  return (
    <Dialog
      open
      onClose={onClose}
      title={`${label} ${verb === "again" ? "" : "this run"}`.trim()}
      about={which + about}
      actions={
        <>
          {verb !== "again" && <Copy text={cliOf([verb], [thread.id, run.id])} label="CLI" what="Copy as a command line" />}
          <span className="flex-1" />
          <Button onClick={onClose}>Leave it</Button>
          <Button look={danger ? "danger" : "main"} busy={control.isPending && "One moment …"} onClick={act}>
            {verb === "again" ? label : `${label} the run`}
          </Button>
        </>
      }
    >
      {verb !== "again" && (
        <Field label="Reason" hint="It is recorded with your name.">
          {(ids) => <Area {...ids} value={reason} onChange={(e) => setReason(e.target.value)} rows={2} />}
        </Field>
      )}
    </Dialog>
  );
}
