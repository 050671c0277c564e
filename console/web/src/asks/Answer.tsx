import { Check, MessageSquare, Pencil, ShieldCheck, X } from "lucide-react";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useDraft } from "@/app/draft";
import { useHotkeys } from "@/app/hotkeys";
import { useCan, useMe } from "@/api/queries";
import { type Ask, askedCall, decisionsOf, replyText, valueSchema, verbOf } from "@/lib/ask";
import { cx } from "@/lib/cx";
import { parsedWritten } from "@/lib/exact";
import { own } from "@/lib/own";
import { many, plain } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Area, Field } from "@/ui/Field";
import { Kbd } from "@/ui/Kbd";
import { sayRefused } from "@/ui/Toast";
import type { Fold } from "./fold";
import { useAnswer } from "./mutations";
import { Always } from "./Always";
import { Provide } from "./Provide";
import { onSend, SendKeys } from "./send";
import { firstValue, ValueEditor, type ValueDraft, written } from "./ValueEditor";

/** What someone has begun to answer. */
export interface Draft {
  /** The decision whose panel is open. */
  open?: string;
  message?: string;
  values?: Record<string, ValueDraft>;
  /** The answer that was tried, by replyText. */
  tried?: string;
  /** Something was written since then. */
  since?: boolean;
}

const keyOf: Record<string, string> = { approve: "a", edit: "e", reject: "r", respond: "s", always: "l", "": "e", provided: "e" };
const agrees = new Set(["approve", "always"]);
const icons: Record<string, ReactNode> = {
  approve: <Check aria-hidden />,
  edit: <Pencil aria-hidden />,
  reject: <X aria-hidden />,
  respond: <MessageSquare aria-hidden />,
  always: <ShieldCheck aria-hidden />,
};

/** What someone has written in answers, for which decision, and whether it is the one that was tried. */
export const writtenIn = (draft: Draft | undefined): { decision: string; text: string; tried: boolean }[] =>
  [
    { text: draft?.message, reply: { decision: "reject", message: draft?.message?.trim() } },
    ...Object.entries(draft?.values ?? {}).map(([decision, { text }]) => ({ text, reply: { decision, value: parsedWritten(text ?? "") } })),
  ].flatMap(({ text, reply }) => (text ? [{ decision: reply.decision, text, tried: replyText(reply) === draft?.tried }] : []));

/** A draft without what was written for a decision. */
export function without(draft: Draft | undefined, decision: string): Draft {
  if (decision === "reject") return { ...draft, message: undefined };
  const { [decision]: _, ...values } = draft?.values ?? {};
  return { ...draft, values };
}

/** Whether the caller may answer: the scope, and the people and groups whom the ask names. */
export function useMayAnswer(ask: Ask): boolean {
  const can = useCan("answer");
  const { data: me } = useMe();
  if (!can || !me) return false;
  return !ask.who?.length || ask.who.includes(me.subject) || !!me.groups?.some((group) => ask.who?.includes(`group:${group}`));
}

const look = 700; // ms

/** Whether something has been in sight for a moment: a second click or key is not meant for what has taken the place of the first. */
function useSeen(what: string): boolean {
  const [seen, setSeen] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSeen(what), look);
    return () => clearTimeout(timer);
  }, [what]);
  return seen === what;
}

interface AnswerOptions {
  /** Whether keys of the keyboard decide. */
  keys?: boolean;
  onDone?(): void;
  fold: Fold;
}

/** The buttons of an ask, and the panel for what has to be said with its answer. The draft outlives the page. */
export function useAnswerParts(ask: Ask, { keys = true, onDone, fold }: AnswerOptions): { buttons: ReactNode; panel: ReactNode } {
  const [wanted, setWanted] = useState(false); // the panel was opened just now, and gets the focus
  const [draft, setDraft] = useDraft<Draft>(`ask ${ask.id}`);
  const may = useMayAnswer(ask);
  const answer = useAnswer(ask, (reply) => setDraft((before) => (before?.since || before?.tried !== replyText(reply) ? before : undefined)));
  const decisions = decisionsOf(ask);
  const call = askedCall(ask);
  const only = decisions.length === 1 && needsPanel(ask, decisions[0]!) ? decisions[0] : undefined; // its panel needs no button
  const open = draft?.open ?? only;
  const value = (decision: string) => own(draft?.values, decision);
  const key = (decision: string) => own(keyOf, decision);
  const seen = useSeen(`${ask.id} ${keys}`);
  const send = (decision: string, more: { value?: unknown; message?: string } = {}) => {
    if (answer.isPending || !seen) return;
    const reply = { ...(decision ? { decision } : {}), ...more };
    setDraft((before) => ({ ...before, tried: replyText(reply), since: undefined }));
    answer.mutate(reply, { onSuccess: () => onDone?.() });
  };
  // Whether something was entered in the panel of a decision, which another one would drop.
  const begun = (decision: string) => {
    if (decision === "reject") return !!draft?.message;
    const text = value(decision)?.text;
    return text !== undefined && text !== written(firstValue(valueSchema(ask, decision) ?? undefined, decision === "edit" ? call?.args : undefined));
  };
  const choose = (decision: string, toggle = true) => {
    if (!seen) return;
    if (fold.folded && agrees.has(decision)) {
      fold.unfold();
      return sayRefused(`${many(fold.folded, "value was", "values were")} folded`, "Everything is shown now. Look at it, then decide.");
    }
    if (!needsPanel(ask, decision)) {
      if (open !== undefined && begun(open)) return sayRefused("You have begun another answer", `Send it, or close it with ${verbOf(open)}, before you decide otherwise.`);
      return send(decision);
    }
    setWanted(true);
    setDraft((before) => ({ ...before, open: toggle && before?.open === decision ? undefined : decision }));
  };
  useHotkeys(
    !may || !keys
      ? {}
      : {
          ...Object.fromEntries(decisions.filter(key).map((d) => [key(d), (event: KeyboardEvent) => !event.repeat && choose(d, false)])),
          ...(draft?.open !== undefined ? { Escape: () => setDraft((before) => ({ ...before, open: undefined })) } : {}),
        },
  );
  if (!may)
    return {
      buttons: <p className="text-soft">{ask.who?.length ? `Only ${ask.who.map(plain).join(", ")} may answer this.` : "Your token may look, but not answer."}</p>,
      panel: null,
    };
  const setValue = (decision: string) => (next: ValueDraft) => setDraft((before) => ({ ...before, open: decision, values: { ...before?.values, [decision]: next }, since: true }));
  const buttons = only === undefined && (
    <div role="group" aria-label="Decide" className="flex flex-wrap items-center gap-2">
      {fold.folded > 0 && (
        <p className="w-full text-ask">
          {many(fold.folded, "value is", "values are")} folded.{" "}
          <Button size="small" onClick={fold.unfold}>
            Show everything
          </Button>
        </p>
      )}
      {decisions.map((decision) => (
        <Button
          key={decision}
          look={decision === "approve" ? "main" : decision === "reject" ? "danger" : "plain"}
          className={cx("max-sm:h-11 max-sm:flex-1", open === decision && "!bg-selected !text-text")}
          icon={own(icons, decision)}
          aria-expanded={needsPanel(ask, decision) ? open === decision : undefined}
          busy={answer.isPending && answer.variables.decision === decision && "Sending …"}
          disabled={answer.isPending || !seen}
          title={keys && key(decision) ? `${verbOf(decision)} (${key(decision)})` : undefined}
          onClick={() => choose(decision)}
        >
          {plain(verbOf(decision))}
          {keys && key(decision) && (
            <span className="-mr-1 hidden opacity-80 2xl:inline">
              <Kbd>{key(decision)!}</Kbd>
            </span>
          )}
        </Button>
      ))}
    </div>
  );
  const panel = open !== undefined && (
    <Panel key={`${ask.id} ${open}`} focus={wanted}>
      {open === "reject" ? (
        <Reject message={draft?.message ?? ""} setMessage={(message) => setDraft((b) => ({ ...b, open, message, since: true }))} busy={answer.isPending} send={(message) => send("reject", message ? { message } : {})} />
      ) : open === "provided" ? (
        <Provide ask={ask} onDone={onDone} />
      ) : open === "always" && call ? (
        <Always call={call} draft={value(open)} setDraft={setValue(open)} busy={answer.isPending} send={(v) => send("always", v === undefined ? {} : { value: v })} />
      ) : (
        <ValueEditor
          schema={valueSchema(ask, open) ?? undefined}
          before={open === "edit" ? call?.args : undefined}
          choices={choicesOf(ask)}
          draft={value(open)}
          setDraft={setValue(open)}
          busy={answer.isPending}
          disabled={!seen}
          verb={sendWord(open)}
          send={(v) => send(open, { value: v })}
        />
      )}
    </Panel>
  );
  return { buttons, panel };
}

const sendWord = (decision: string) =>
  decision === "edit" ? "Approve with this change" : decision === "respond" ? "Answer in place of the call" : decision && verbOf(decision) === decision ? `Decide “${decision}”` : "Send the answer";

/** Whether a decision needs to be told more before it is sent. */
const needsPanel = (ask: Ask, decision: string) =>
  decision === "reject" || decision === "always" || decision === "provided" || decision === "edit" || valueSchema(ask, decision) !== null;

const choicesOf = (ask: Ask): string[] => {
  const choices = (ask.data as { choices?: unknown } | null | undefined)?.choices;
  return Array.isArray(choices) ? choices.filter((one): one is string => typeof one === "string") : [];
};

/** A panel whose first field gets the focus if someone has opened it just now. */
function Panel({ focus, children }: { focus: boolean; children: ReactNode }) {
  const ref = useRef<HTMLDivElement>(null);
  const first = useRef(focus);
  useEffect(() => {
    if (!first.current) return;
    ref.current?.querySelector<HTMLElement>("textarea, input, select")?.focus({ preventScroll: true });
    ref.current?.scrollIntoView({ block: "start", behavior: "instant" });
  }, []);
  return (
    <div ref={ref} className="scroll-mt-4 rounded border border-accent bg-panel p-3">
      {children}
    </div>
  );
}

function Reject({ message, setMessage, busy, send }: { message: string; setMessage(text: string): void; busy: boolean; send(message: string): void }) {
  return (
    <div className="space-y-3" onKeyDownCapture={onSend(() => send(message.trim()))}>
      <Field label="Why" hint="A word to whoever asked. An agent reads it. It may be empty.">
        {(ids) => <Area {...ids} dir="auto" value={message} onChange={(e) => setMessage(e.target.value)} className="min-h-16" />}
      </Field>
      <div className="flex items-center justify-end gap-3">
        <SendKeys />
        <Button look="danger" icon={<X aria-hidden />} busy={busy && "Sending …"} onClick={() => send(message.trim())} className="max-sm:h-11 max-sm:flex-1">
          Reject
        </Button>
      </div>
    </div>
  );
}
