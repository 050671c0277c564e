import { newId } from "@perdure/client";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, type Schemas } from "@/api/client";
import { keys, useCan, useWrite } from "@/api/queries";
import { parseWritten, rawNumber } from "@/lib/exact";
import { activeRuns, type Entry } from "@/lib/journal";
import { failure, failureText } from "@/lib/lost";
import { count } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Dialog } from "@/ui/Dialog";
import { Field, Input } from "@/ui/Field";
import { say, sayError } from "@/ui/Toast";
import { Effects } from "./Effects";
import { useEventAt, useStateAt } from "./queries";

interface ForkProps {
  thread: string;
  at: number;
  entries: Entry[];
  onClose(): void;
}

/** JSON that a person edits, or why it is none. */
function parse(text: string, check: (value: unknown) => string | undefined): { value?: unknown; error?: string } {
  try {
    const value = parseWritten(text);
    const error = check(value);
    return error ? { error } : { value };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

function sayStuck(errors: unknown[]) {
  for (const error of errors) sayError(...failure("The fork is there, but its run could not be continued", error, "The request to continue the fork", "The server does not answer. Look at the run before you resume it."));
}

const isObject = (value: unknown) => (value !== null && typeof value === "object" && !Array.isArray(value) && rawNumber(value) === undefined ? undefined : "This has to be an object with the keys to set.");

/** Forks a thread at a point, as it was or with another input or state. */
export function ForkDialog({ thread, at, entries, onClose }: ForkProps) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const mayAnswer = useCan("answer");
  const state = useStateAt(thread, at);
  const active = activeRuns(entries, at);
  const queued = entries.findLast((e) => e.kind === "queued" && e.seq <= at && active.includes(e.run ?? ""));
  const begun = useEventAt(thread, queued?.seq ?? 0, queued?.life);
  const [as, setAs] = useState("");
  const [input, setInput] = useState<string>();
  const [changed, setChanged] = useState<string>();
  const [keep, setKeep] = useState(false);
  const [done, setDone] = useState<Schemas["Fork"]>();

  const newInput = input === undefined ? {} : parse(input, () => undefined);
  const newState = changed === undefined ? {} : parse(changed, isObject);
  const answered = entries.some((e) => e.kind === "answered" && e.seq <= at);

  const id = useMemo(newId, [thread, at, as, input, changed, keep]); // sent again, it is the same fork
  const fork = useWrite({
    mutationFn: async (goOn: boolean) => {
      const made = await api.post("/v1/threads/{thread}/fork", {
        path: { thread },
        body: {
          at,
          as: as.trim() || id,
          input: input === undefined ? undefined : newInput.value,
          state: changed === undefined ? undefined : (newState.value as Record<string, never>),
          keep: keep || undefined,
        },
      });
      const stuck: unknown[] = [];
      for (const run of goOn ? active : [])
        await api.post("/v1/threads/{thread}/runs/{run}/resume", { path: { thread: made.thread, run }, body: {} }).catch((error: unknown) => stuck.push(error));
      return { made, stuck };
    },
    onSuccess: ({ made, stuck }) => {
      void client.invalidateQueries({ queryKey: keys.threads() });
      void client.invalidateQueries({ queryKey: ["family"] });
      if (!made.outside?.length) say("The fork is there", made.thread);
      sayStuck(stuck);
    },
  });
  const open = (made: Schemas["Fork"]) => {
    onClose();
    return navigate({ to: "/threads/$thread/travel", params: { thread: made.thread }, search: {} });
  };
  const submit = (goOn: boolean) =>
    fork.mutate(goOn, {
      onSuccess: async ({ made, stuck }) => {
        if (made.outside?.length) return setDone(made);
        await open(made);
        sayStuck(stuck); // again: another page takes away what has not worked
      },
    });
  const compare = (made: Schemas["Fork"]) => {
    onClose();
    void navigate({ to: "/threads/$thread/travel", params: { thread }, search: { at: String(entries.at(-1)?.seq ?? at), with: made.thread, tab: "changes" } });
  };

  if (done)
    return (
      <Dialog
        open
        onClose={() => open(done)}
        title="The fork is there"
        about={`It shares the first ${count(done.at)} events. The original is unchanged.`}
        actions={
          <>
            <Button onClick={() => compare(done)}>Compare both</Button>
            <Button look="main" onClick={() => open(done)}>
              Open the fork
            </Button>
          </>
        }
      >
        <Effects effects={done.outside ?? []} more={done.more} what="The original did this after that point. It is not in the fork, and what it did outside is not undone:" />
      </Dialog>
    );

  const bad = !!newInput.error || !!newState.error;
  const problem = failureText(fork.error, "Fork again: it makes one fork.");
  return (
    <Dialog
      open
      onClose={onClose}
      wide
      title={`Fork at ${count(at)}`}
      about={
        active.length
          ? "A new thread shares everything up to this point. Its run is paused until someone continues it. The original is unchanged."
          : "A new thread shares everything up to this point. No run was active there. The original is unchanged."
      }
      actions={
        <>
          <Button onClick={onClose}>Do not fork</Button>
          {active.length > 0 && (
            <Button disabled={bad} busy={fork.isPending && "Forking …"} onClick={() => submit(false)}>
              Fork, stay paused
            </Button>
          )}
          <Button look="main" disabled={bad} busy={fork.isPending && "Forking …"} onClick={() => submit(active.length > 0)}>
            {active.length > 0 ? "Fork and continue" : "Fork"}
          </Button>
        </>
      }
    >
      <Field label="Id of the fork" hint="One is made if you leave it empty.">
        {(ids) => <Input {...ids} value={as} onChange={(e) => setAs(e.target.value)} spellCheck={false} autoComplete="off" />}
      </Field>
      {queued && (
        <Edited
          label="Input of the run"
          hint={queued.seq === at ? undefined : `The run keeps what it has recorded up to ${count(at)}. To begin with another input, fork at ${count(queued.seq)}.`}
          value={input}
          from={begun.data ? JSON.stringify((begun.data as { value?: unknown }).value ?? null, null, 2) : undefined}
          onChange={setInput}
          error={newInput.error}
        />
      )}
      <Edited
        label="State"
        hint={`Keys to set; null removes a key. ${stateKeys(state.data?.state)}`}
        value={changed}
        from={"{\n  \n}"}
        onChange={setChanged}
        error={newState.error}
      />
      {answered && mayAnswer && (
        <label className="flex items-start gap-2">
          <input type="checkbox" className="mt-1" checked={keep} onChange={(e) => setKeep(e.target.checked)} />
          <span>
            Keep answers that have had no effect yet
            <span className="block text-xs text-soft">Otherwise they are void in the fork, and people are asked again.</span>
          </span>
        </label>
      )}
      {problem && (
        <p role="alert" className="outside rounded bg-bad-tint px-3 py-2 text-bad">
          {problem}
        </p>
      )}
    </Dialog>
  );
}

function stateKeys(state: unknown): string {
  const known = Object.keys((state ?? {}) as object).filter((key) => !key.startsWith("agent."));
  return known.length ? `Here it has ${known.slice(0, 12).join(", ")}${known.length > 12 ? ", …" : ""}.` : "";
}

/** A value that stays as it is until someone edits it. */
function Edited(props: { label: string; hint?: string; value?: string; from?: string; onChange(value: string | undefined): void; error?: string }) {
  const { label, hint, value, from, onChange, error } = props;
  if (value === undefined)
    return (
      <div className="flex items-center gap-2">
        <span className="font-medium">{label}</span>
        <span className="text-soft">as it was</span>
        <Button size="small" disabled={from === undefined} onClick={() => onChange(from)} aria-label={`Change: ${label}`}>
          Change
        </Button>
      </div>
    );
  return (
    <div className="space-y-1">
      <div className="flex items-center gap-2">
        <span className="flex-1 font-medium">{label}</span>
        <Button look="quiet" size="small" onClick={() => onChange(undefined)} aria-label={`Leave as it was: ${label}`}>
          Leave as it was
        </Button>
      </div>
      <Code label={label} value={value} onChange={onChange} height="9rem" />
      <p role={error ? "alert" : undefined} className={error ? "outside text-xs text-bad" : "text-xs text-soft"}>
        {error ?? hint}
      </p>
    </div>
  );
}
