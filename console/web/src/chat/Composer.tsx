import { ListEnd, SendHorizontal, Square } from "lucide-react";
import { useEffect, useRef } from "react";
import { useDraft } from "@/app/draft";
import { Button } from "@/ui/Button";
import { Area } from "@/ui/Field";

export type Policy = "steer" | "enqueue";

interface Draft {
  text: string;
  /** What was sent and not yet confirmed. The key makes it one message, however often it is sent. */
  sent?: { key: string; text: string; policy: Policy };
}

interface ComposerProps {
  /** Names the draft. */
  place: string;
  /** A turn is running, which a message can steer. */
  busy: boolean;
  send(message: { text: string; key: string; policy: Policy }): Promise<void>;
  stop?(): void;
}

/** Where a person writes. What is written outlives the page, and what was sent is sent once. */
export function Composer({ place, busy, send, stop }: ComposerProps) {
  const [draft, setDraft] = useDraft<Draft>(place);
  const text = draft?.text ?? "";
  const sending = useRef(false);
  const again = useRef(draft?.sent);
  const deliver = async (message: { text: string; key: string; policy: Policy }) => {
    if (sending.current) return;
    sending.current = true;
    setDraft({ text: message.text, sent: message });
    try {
      await send(message);
      setDraft(undefined);
    } catch {
      setDraft((before) => ({ text: before?.text ?? message.text, sent: message })); // it can be sent again
    } finally {
      sending.current = false;
    }
  };
  const submit = (policy: Policy) => {
    const said = text.trim();
    if (!said) return;
    const before = draft?.sent?.text === said && draft.sent.policy === policy ? draft.sent : undefined;
    void deliver(before ?? { text: said, key: crypto.randomUUID(), policy });
  };
  useEffect(() => {
    // The page was left while a message was under way.
    if (again.current) void deliver(again.current);
    again.current = undefined;
  }, []);
  return (
    <form
      className="flex items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        submit(busy ? "steer" : "enqueue");
      }}
    >
      <Area
        aria-label="Message"
        dir="auto"
        rows={1}
        autoFocus
        placeholder={busy ? "Steer this turn …" : "Write a message …"}
        className="field-sizing-content max-h-40 !min-h-9 flex-1 resize-none max-sm:!min-h-11"
        value={text}
        onChange={(event) => setDraft((before) => ({ ...before, text: event.target.value }))}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          submit(busy ? "steer" : "enqueue");
        }}
      />
      {busy && text.trim() && <Button className="h-9 max-sm:h-11" icon={<ListEnd aria-hidden />} aria-label="Send after this turn" title="Send after this turn" onClick={() => submit("enqueue")} />}
      {busy && !text.trim() && stop ? (
        <Button look="danger" className="h-9 max-sm:h-11" icon={<Square aria-hidden />} onClick={stop}>
          Stop
        </Button>
      ) : (
        <Button look="main" type="submit" className="h-9 max-sm:h-11" icon={<SendHorizontal aria-hidden />} disabled={!text.trim()}>
          {busy ? "Steer" : "Send"}
        </Button>
      )}
    </form>
  );
}
