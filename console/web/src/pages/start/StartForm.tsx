import { newId } from "@perdure/client";
import { useNavigate } from "@tanstack/react-router";
import { Play } from "lucide-react";
import { useMemo } from "react";
import { api } from "@/api/client";
import { useWrite } from "@/api/queries";
import { onSend, SendKeys } from "@/asks/send";
import { FaultList, useValue, type ValueDraft, Views } from "@/asks/ValueEditor";
import { useDraft } from "@/app/draft";
import { jsonFault } from "@/lib/exact";
import { type Flow, inputSchema } from "@/lib/flow";
import { failure } from "@/lib/lost";
import { faultsText } from "@/lib/schema";
import { oneLine, plain } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Field, Input } from "@/ui/Field";
import { SchemaForm } from "@/ui/SchemaForm";
import { sayError } from "@/ui/Toast";

interface Draft {
  input?: ValueDraft;
  title?: string;
  /** Made once for what is in the form, so that it starts one run. */
  key?: string;
}

const text = { type: "string", title: "Input" };

/** The form of a flow's input. */
export function StartForm({ flow, may }: { flow: Flow; may: boolean }) {
  const navigate = useNavigate();
  const [draft, setDraft] = useDraft<Draft>(`start ${flow.name}`);
  const known = useMemo(() => inputSchema(flow), [flow]);
  const json = draft?.input?.view === "json";
  const schema = known ?? (json ? undefined : text); // without a schema, the form takes a text
  const input = useValue(schema, undefined, draft?.input, (next) => setDraft((before) => ({ ...before, input: next, key: undefined })));
  const broken = input.view === "json" && input.value === undefined && jsonFault(input.text);
  const start = useWrite({
    mutationFn: (key: string) =>
      api.post("/v1/runs", { headers: { "Idempotency-Key": key }, body: { flow: flow.name, input: input.value, ...(draft?.title ? { title: draft.title } : {}) } }),
    onSuccess: (run) => {
      setDraft(undefined);
      void navigate({ to: "/threads/$thread", params: { thread: run?.thread ?? "" } });
    },
    onError: (error) => sayError(...failure("It was not started", error, "The start", "The server does not answer. Start it again later: it begins once.")),
  });
  const submit = () => {
    input.setShown(true);
    if (broken || input.faults.size || start.isPending || start.isSuccess || !may) return;
    const key = draft?.key ?? newId();
    setDraft((before) => ({ ...before, key }));
    start.mutate(key);
  };
  return (
    <div className="max-w-2xl space-y-4 p-4" onKeyDownCapture={onSend(submit)}>
      <div className="flex items-center gap-3">
        <h2 className="flex-1 text-lg">
          <bdi>{plain(flow.name)}</bdi>
        </h2>
        <Views view={input.view} setView={input.setView} broken={broken} />
      </div>
      {input.view === "form" ? (
        <SchemaForm schema={schema} value={input.value} onChange={input.setValue} faults={input.shown ? input.faults : new Map()} />
      ) : (
        <>
          <Code label="Input as JSON" value={input.text} onChange={input.setText} height="16rem" />
          {(input.shown || (broken && input.text.trim() !== "")) && <FaultList faults={input.faults} broken={broken} />}
        </>
      )}
      <Field label="Title of the thread" hint="For lists. It may be empty.">
        {(ids) => <Input {...ids} dir="auto" value={draft?.title ?? ""} onChange={(e) => setDraft((before) => ({ ...before, title: e.target.value, key: undefined }))} />}
      </Field>
      <div className="flex items-center justify-end gap-3">
        {input.shown && input.faults.size > 0 && !broken && <p className="outside flex-1 text-bad">{oneLine(faultsText(input.faults))}</p>}
        {may ? (
          <>
            <SendKeys />
            <Button look="main" icon={<Play aria-hidden />} busy={start.isPending && "Starting …"} disabled={!!broken} onClick={submit} className="max-sm:h-11 max-sm:flex-1">
              Start
            </Button>
          </>
        ) : (
          <p className="text-soft">Your token may look, but not start anything.</p>
        )}
      </div>
    </div>
  );
}
