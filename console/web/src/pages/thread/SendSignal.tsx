import { newId } from "@perdure/client";
import { useQueryClient } from "@tanstack/react-query";
import { Bell } from "lucide-react";
import { useState } from "react";
import { api } from "@/api/client";
import { keys, useCan, useWrite } from "@/api/queries";
import { useDraft } from "@/app/draft";
import { jsonFault, parsedWritten } from "@/lib/exact";
import { failure } from "@/lib/lost";
import { oneLine } from "@/lib/text";
import type { Awaited } from "@/lib/timeline";
import { Button, firstClick } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Area, Field, Select } from "@/ui/Field";
import { say, sayError, sayRefused } from "@/ui/Toast";

/** Sends one of the signals for which a run waits. */
export function SendSignal({ thread, awaited }: { thread: string; awaited: Awaited[] }) {
  const may = useCan("run");
  const [open, setOpen] = useState(false);
  if (!may) return null;
  return (
    <>
      {awaited[0] && (
        <Button size="small" icon={<Bell aria-hidden />} onClick={() => setOpen(true)}>
          Send the signal
        </Button>
      )}
      {open && <SignalDialog thread={thread} awaited={awaited} onClose={() => setOpen(false)} />}
    </>
  );
}

interface Draft {
  name?: string;
  text?: string;
  /** Made once for what is in the form and the wait that it is for, so that it is one signal. */
  key?: string;
  /** The wait that the key is for. */
  seq?: number;
}

function SignalDialog({ thread, awaited, onClose }: { thread: string; awaited: Awaited[]; onClose(): void }) {
  const client = useQueryClient();
  const [draft, setDraft] = useDraft<Draft>(`signal ${thread}`);
  const [first] = useState(awaited[0]?.name ?? "");
  const chosen = draft?.name ?? first; // and no other before someone chooses it
  const wait = awaited.find(({ name }) => name === chosen);
  const text = draft?.text ?? "";
  const value = parsedWritten(text);
  const broken = text.trim() !== "" && value === undefined && jsonFault(text);
  const send = useWrite({
    mutationFn: (key: string) => api.post("/v1/threads/{thread}/signals/{name}", { path: { thread, name: chosen }, headers: { "Idempotency-Key": key }, body: text.trim() ? { value } : {} }),
    onSuccess: (_, key) => {
      setDraft((before) => (before?.key === key ? undefined : before));
      say("The signal has been sent");
    },
    onError: (error) => sayError(...failure("The signal was not taken", error, "The signal", "The server does not answer. Send it again later: it counts once.")),
    onSettled: () => client.invalidateQueries({ queryKey: keys.thread(thread) }),
  });
  const submit = () => {
    const seq = wait?.seq;
    if (draft?.key && draft.seq !== seq) {
      setDraft({ name: chosen, text });
      return sayRefused("The run waits for the signal anew", "What you have sent may have been taken: the wait that it was for is over. Send it once more if it is meant for this one too.");
    }
    const key = draft?.key ?? newId();
    setDraft({ name: chosen, text, key, seq });
    send.mutate(key, { onSuccess: onClose });
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Send the signal ${oneLine(chosen, 80)}`}
      about="The run goes on with the value. What the flow expects, only its code knows."
      actions={
        <>
          <Button onClick={onClose}>Leave it</Button>
          <Button look="main" icon={<Bell aria-hidden />} busy={send.isPending && "Sending …"} disabled={!!broken || !wait} onClick={firstClick(submit)}>
            Send
          </Button>
        </>
      }
    >
      {!wait && !send.isPending && (
        <p role="alert" className="text-bad">
          The run no longer waits for the signal <bdi>{oneLine(chosen, 80)}</bdi>. {awaited.length > 0 && "Choose another one if the value is meant for it."}
        </p>
      )}
      {awaited.some(({ name }) => name !== chosen) && (
        <Field label="Signal">
          {(ids) => (
            <Select {...ids} value={chosen} onChange={(e) => setDraft({ name: e.target.value, text })}>
              {!wait && (
                <option value={chosen} disabled>
                  {oneLine(chosen, 80)}
                </option>
              )}
              {awaited.map(({ name }) => (
                <option key={name} value={name}>
                  {oneLine(name, 80)}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      <Field label="Value" hint={'As JSON: 42, {"by": "ann"}, or "a text" with its quotes. It may be empty.'} error={broken ? oneLine(broken) : undefined}>
        {(ids) => <Area {...ids} dir="auto" className="font-mono" spellCheck={false} value={text} onChange={(e) => setDraft({ name: chosen, text: e.target.value })} />}
      </Field>
    </Dialog>
  );
}
