import { Check, X } from "lucide-react";
import { useState } from "react";
import { useCan } from "@/api/queries";
import { useHotkeys } from "@/app/hotkeys";
import { onSend, SendKeys } from "@/asks/send";
import { useAnswerAll } from "@/asks/mutations";
import { type Ask, commonDecisions, tooLarge, verbOf } from "@/lib/ask";
import { own } from "@/lib/own";
import { many, plain } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Area, Field } from "@/ui/Field";
import { Kbd } from "@/ui/Kbd";
import { sayError } from "@/ui/Toast";

const keys: Record<string, string> = { approve: "a", reject: "r" };
const keyOf = (decision: string) => own(keys, decision);

/** Answers the selected asks at once. */
export function Several({ asks, onDone }: { asks: Ask[]; onDone(): void }) {
  const can = useCan("answer");
  const answer = useAnswerAll();
  const [why, setWhy] = useState<string>(); // undefined: not asked for
  const decisions = can ? commonDecisions(asks) : [];
  const send = (decision: string, message?: string) => {
    if (!answer.isPending) answer.mutate({ asks, reply: { decision, ...(message ? { message } : {}) } }, { onSuccess: onDone });
  };
  const choose = (decision: string) => {
    if (decision === "reject") return setWhy((before) => before ?? "");
    const large = tooLarge(asks).length;
    if (decision === "approve" && large) return sayError(`${many(large, "ask is", "asks are")} too large to be approved among others`, "Open what is folded there first, and approve it by itself.");
    send(decision);
  };
  useHotkeys(Object.fromEntries(decisions.filter(keyOf).map((d) => [keyOf(d), () => choose(d)])));
  return (
    <section aria-label="Selected asks" className="space-y-3 border-t border-line bg-panel px-4 py-3">
      <div className="flex flex-wrap items-center gap-2">
        <p className="flex-1 font-medium whitespace-nowrap">{many(asks.length, "ask")} selected</p>
        {decisions.map((decision) => (
          <Button
            key={decision}
            look={decision === "approve" ? "main" : decision === "reject" ? "danger" : "plain"}
            icon={decision === "approve" ? <Check aria-hidden /> : decision === "reject" ? <X aria-hidden /> : undefined}
            busy={answer.isPending && answer.variables.reply.decision === decision && "Sending …"}
            disabled={answer.isPending}
            onClick={() => choose(decision)}
          >
            {plain(verbOf(decision))} all {keyOf(decision) && <Kbd>{keyOf(decision)!}</Kbd>}
          </Button>
        ))}
      </div>
      {decisions.length === 0 && <p className="text-soft">{can ? "These have no decision in common. Answer them one by one." : "Your token may look, but not answer."}</p>}
      {why !== undefined && (
        <div className="space-y-2" onKeyDownCapture={onSend(() => send("reject", why.trim()))}>
          <Field label="Why" hint="The same word goes to all of them. It may be empty.">
            {(ids) => <Area {...ids} autoFocus dir="auto" value={why} onChange={(e) => setWhy(e.target.value)} className="min-h-16" />}
          </Field>
          <div className="flex items-center justify-end gap-3">
            <SendKeys />
            <Button look="quiet" onClick={() => setWhy(undefined)}>
              Not now
            </Button>
            <Button look="danger" busy={answer.isPending && "Sending …"} onClick={() => send("reject", why.trim())}>
              Reject {many(asks.length, "ask")}
            </Button>
          </div>
        </div>
      )}
    </section>
  );
}
