import { Check } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { jsonFault, parsedWritten } from "@/lib/exact";
import { blank, check, faultsText, type Schema } from "@/lib/schema";
import { oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Diff } from "@/ui/Diff";
import { SchemaForm } from "@/ui/SchemaForm";
import { onSend, SendKeys } from "./send";

/** A value that is being entered: as JSON, and by which of the two views. */
export interface ValueDraft {
  text?: string;
  view?: "form" | "json";
}

interface ValueEditorProps {
  schema: Schema | undefined;
  /** What is being changed; undefined if the value is new. */
  before?: unknown;
  choices?: string[];
  draft: ValueDraft | undefined;
  setDraft(draft: ValueDraft): void;
  verb: string;
  busy: boolean;
  disabled?: boolean;
  send(value: unknown): void;
}

/** Enters a value by a form or as JSON, checks it against its schema, and shows what changes. */
export function ValueEditor(props: ValueEditorProps) {
  const { schema, before, choices = [], draft, setDraft, verb, busy, disabled, send } = props;
  const { value, setValue, view, text, faults, shown, setShown, setText, setView } = useValue(schema, before, draft, setDraft);
  const broken = view === "json" && value === undefined && jsonFault(text);
  useEffect(() => void Code.preload(), []);
  const submit = () => {
    setShown(true);
    if (!broken && faults.size === 0 && !busy && !disabled) send(value);
  };
  return (
    <div className="space-y-3" onKeyDownCapture={onSend(submit)}>
      <Views view={view} setView={setView} broken={broken} />
      {choices.length > 0 && (
        <div role="group" aria-label="Choices" className="flex flex-wrap gap-2">
          {choices.map((choice) => (
            <Button key={choice} size="small" onClick={() => setValue(choice)}>
              {oneLine(choice, 120)}
            </Button>
          ))}
        </div>
      )}
      {view === "form" ? (
        <SchemaForm schema={schema} value={value} onChange={setValue} faults={shown || before !== undefined ? faults : new Map()} />
      ) : (
        <Code label="JSON" value={text} onChange={setText} height="14rem" />
      )}
      {view === "json" && (shown || before !== undefined || (broken && text.trim() !== "")) && <FaultList faults={faults} broken={broken} />}
      {before !== undefined && !broken && (
        <div>
          <p className="mb-1 text-xs font-medium text-faint">What you change</p>
          <Diff before={before} after={value} label="What you change" />
        </div>
      )}
      <div className="flex flex-wrap items-center justify-end gap-3">
        {shown && faults.size > 0 && <p className="outside flex-1 text-bad">{oneLine(faultsText(faults))}</p>}
        <SendKeys />
        <Button look="main" icon={<Check aria-hidden />} busy={busy && "Sending …"} disabled={!!broken || disabled} onClick={submit} className="max-sm:h-11 max-sm:flex-1">
          {verb}
        </Button>
      </div>
    </div>
  );
}

export const Views = ({ view, setView, broken }: { view: "form" | "json"; setView(view: "form" | "json"): void; broken: string | false }) => (
  <div role="group" aria-label="View" className="flex gap-1">
    {(["form", "json"] as const).map((one) => (
      <Button key={one} size="small" look={view === one ? "plain" : "quiet"} aria-pressed={view === one} disabled={one === "form" && !!broken} onClick={() => setView(one)}>
        {one === "form" ? "Form" : "JSON"}
      </Button>
    ))}
  </div>
);

export const FaultList = ({ faults, broken }: { faults: ReadonlyMap<string, string>; broken: string | false }) => (
  <ul className="text-xs text-bad">
    {broken && <li>{oneLine(broken)}</li>}
    {!broken &&
      [...faults].map(([at, what]) => (
        <li key={at}>
          <bdi className="font-mono">{oneLine(at || "value")}</bdi> {what}
        </li>
      ))}
  </ul>
);

/** The value that one begins with. */
export const firstValue = (schema: Schema | undefined, before: unknown) => before ?? blank(schema, schema ?? {});

/** A value as it is edited. */
export const written = (value: unknown) => (value === undefined ? "" : JSON.stringify(value, null, 2));

/** The value that a draft stands for, with its faults, and the ways to change it. */
export function useValue(schema: Schema | undefined, before: unknown, draft: ValueDraft | undefined, setDraft: (draft: ValueDraft) => void) {
  const [shown, setShown] = useState(false);
  const first = useMemo(() => firstValue(schema, before), [before, schema]);
  const view = draft?.view ?? "form";
  const text = draft?.text ?? written(first);
  const [entered, setEntered] = useState<{ text: string; value: unknown }>();
  const value = entered?.text === text ? entered.value : draft?.text === undefined ? first : parsedWritten(text);
  const faults = useMemo(() => check(schema, value), [schema, value]);
  return {
    value,
    text,
    view,
    faults,
    shown,
    setShown,
    setValue(next: unknown) {
      const now = written(next);
      setEntered({ text: now, value: next });
      setDraft({ ...draft, view, text: now });
    },
    setText: (now: string) => setDraft({ ...draft, view, text: now }),
    setView: (now: "form" | "json") => setDraft({ ...draft, view: now, text }),
  };
}
