import { Link } from "@tanstack/react-router";
import { type Ask, askedCall } from "@/lib/ask";
import { precise } from "@/lib/text";
import { Json } from "@/ui/Json";
import { Time } from "@/ui/Time";
import { useAnswerParts } from "./Answer";
import { useFold } from "./fold";

/** An ask where it came up: what is asked, and the answer. */
export function InlineAsk({ ask }: { ask: Ask }) {
  const fold = useFold(ask);
  const { buttons, panel } = useAnswerParts(ask, { keys: false, fold });
  const call = askedCall(ask);
  return (
    <section aria-label="Waits for a person" className="space-y-3 bg-ask-tint/40 p-3">
      <p className="outside font-medium" dir="auto">
        {precise(ask.prompt || "An answer is needed")}
      </p>
      {call ? <Json value={call.args ?? {}} open={fold.open} className="rounded border border-line bg-panel py-1" /> : ask.data ? <Json value={ask.data} open={fold.open} className="rounded border border-line bg-panel py-1" /> : null}
      {panel}
      {buttons}
      <p className="flex flex-wrap gap-x-3 text-xs text-soft">
        <span>
          Asked <Time at={ask.asked} />
        </span>
        {ask.expires && (
          <span>
            expires <Time at={ask.expires} />
          </span>
        )}
        <Link to="/asks/$ask" params={{ ask: ask.id }} className="text-accent hover:underline">
          Its own page
        </Link>
      </p>
    </section>
  );
}
