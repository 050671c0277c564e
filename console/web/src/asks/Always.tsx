import { ShieldCheck } from "lucide-react";
import type { AskedCall } from "@/lib/ask";
import { jsonFault, nameTwice, parsedWritten } from "@/lib/exact";
import { oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Text } from "@/ui/Text";
import { onSend, SendKeys } from "./send";
import type { ValueDraft } from "./ValueEditor";

interface AlwaysProps {
  call: AskedCall;
  draft: ValueDraft | undefined;
  setDraft(draft: ValueDraft): void;
  busy: boolean;
  send(pattern: unknown): void;
}

/** Approves a call and makes a rule for calls like it. */
export function Always({ call, draft, setDraft, busy, send }: AlwaysProps) {
  const wide = draft?.view === "json";
  const text = draft?.text ?? JSON.stringify(call.args, null, 2);
  const pattern = parsedWritten(text);
  const good = !wide || (pattern !== null && typeof pattern === "object" && !Array.isArray(pattern));
  const submit = () => good && !busy && send(wide ? pattern : undefined);
  const group = "always-which";
  return (
    <div className="space-y-3" onKeyDownCapture={onSend(submit)}>
      <p>This approves the call, and later calls like it run without asking until someone revokes the rule.</p>
      <fieldset className="space-y-1">
        <legend className="mb-1 font-medium">Which calls</legend>
        <label className="flex items-center gap-2">
          <input type="radio" name={group} className="accent-accent-fill" checked={!wide} onChange={() => setDraft({ ...draft, view: "form" })} />
          Only with exactly these arguments
        </label>
        <label className="flex items-center gap-2">
          <input type="radio" name={group} className="accent-accent-fill" checked={wide} onChange={() => setDraft({ ...draft, view: "json", text })} />
          All with arguments that fit a pattern
        </label>
      </fieldset>
      {!wide && call.allows && <Text text={call.allows} className="rounded bg-sunken px-3 py-2 text-soft" />}
      {wide && (
        <>
          <Code label="Pattern of the arguments" value={text} onChange={(now) => setDraft({ view: "json", text: now })} height="10rem" />
          <p className="text-xs text-soft">
            In a text, * stands for any characters. Members that you leave out are free, and {"{}"} allows all calls of {call.tool}.
          </p>
        </>
      )}
      <div className="flex items-center justify-end gap-3">
        {!good && <p className="flex-1 text-bad">{nameTwice(text) ? oneLine(jsonFault(text)) : "The pattern is not a JSON object."}</p>}
        <SendKeys />
        <Button look="main" icon={<ShieldCheck aria-hidden />} busy={busy && "Sending …"} disabled={!good} onClick={submit} className="max-sm:h-11 max-sm:flex-1">
          Approve, and allow from now on
        </Button>
      </div>
    </div>
  );
}
