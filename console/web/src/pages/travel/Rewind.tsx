import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { keys, useWrite } from "@/api/queries";
import { activeRuns, effectsAfter, type Entry, idOf, quietBefore } from "@/lib/journal";
import { failureText } from "@/lib/lost";
import { count } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Field, Input } from "@/ui/Field";
import { say } from "@/ui/Toast";
import { Effects } from "./Effects";

interface RewindProps {
  thread: string;
  at: number;
  entries: Entry[];
  onClose(): void;
  onFork(): void;
  onMove(at: number): void;
}

/** Takes a thread back, after saying what stays done outside. */
export function RewindDialog({ thread, at, entries, onClose, onFork, onMove }: RewindProps) {
  const client = useQueryClient();
  const [reason, setReason] = useState("");
  const last = entries.at(-1)?.seq ?? at;
  const rewind = useWrite({
    mutationFn: () => api.post("/v1/threads/{thread}/rewind", { path: { thread }, headers: { "If-Match": `"${idOf(last, entries.at(-1)?.life)}"` }, body: { to: at, reason: reason.trim() || undefined } }),
    onSuccess: async (done) => {
      await client.invalidateQueries({ queryKey: keys.thread(thread) });
      say(`The thread is as it was at ${count(done.to)}`, `The rewind itself is event ${count(done.seq)}.`);
    },
  });

  const submit = () =>
    rewind.mutate(undefined, {
      onSuccess: ({ seq }) => {
        onMove(seq);
        onClose();
      },
    });
  const then = activeRuns(entries, at);
  const now = activeRuns(entries, last);
  if (then.length || now.length) {
    const quiet = then.length ? quietBefore(entries, at) : undefined;
    return (
      <Dialog
        open
        onClose={onClose}
        title={`The thread cannot be taken back to ${count(at)}`}
        about={
          then.length
            ? "A run was active at this point, and half a run cannot be restored in place. A fork can begin there, since it continues the run in a thread of its own."
            : "A run of this thread is active now. Cancel it or let it end first, or fork the thread here."
        }
        actions={
          <>
            {quiet !== undefined && (
              <Button
                onClick={() => {
                  onMove(quiet);
                  onClose();
                }}
              >
                Go to {count(quiet)}, where none was
              </Button>
            )}
            <Button look="main" onClick={onFork}>
              Fork here
            </Button>
          </>
        }
      />
    );
  }
  const effects = effectsAfter(entries, at);
  const problem = failureText(rewind.error, "Look at the newest event before you take it back again.");
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Take the thread back to ${count(at)}`}
      about="State, files, conversation and runs become what they were there. Nothing is deleted: the events stay in the journal, and what was spent stays spent."
      actions={
        <>
          <Button onClick={onClose}>Leave it as it is</Button>
          <Button look="danger" disabled={at >= last} busy={rewind.isPending && "Taking it back …"} onClick={submit}>
            Take it back
          </Button>
        </>
      }
    >
      {effects.length > 0 ? (
        <Effects effects={effects} what="What these steps did outside the thread is not undone. Messages that were sent stay sent, and payments stay made:" />
      ) : (
        <p>{at >= last ? "This is the newest point." : "No step ran after this point, so nothing outside is affected."}</p>
      )}
      <Field label="Why" hint="It is recorded with the rewind.">
        {(ids) => <Input {...ids} value={reason} onChange={(e) => setReason(e.target.value)} />}
      </Field>
      {problem && (
        <p role="alert" className="outside rounded bg-bad-tint px-3 py-2 text-bad">
          {problem}
        </p>
      )}
    </Dialog>
  );
}
