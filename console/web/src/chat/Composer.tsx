import { ListEnd, SendHorizontal, Square } from "lucide-react";
import { useState } from "react";
import { useDraft } from "@/app/draft";
import { Button, firstClick } from "@/ui/Button";
import { Area } from "@/ui/Field";
import { after, type Draft, edited, type Message, messageOf, type Policy } from "./message";

interface ComposerProps {
  /** Names the draft. */
  place: string;
  /** A turn is running, which a message can steer. */
  busy: boolean;
  send(message: Message): Promise<void>;
  stop?(): void;
}

/** Where a person writes. What is written outlives the page, and only a person sends it. */
export function Composer({ place, busy, send, stop }: ComposerProps) {
  const [draft, setDraft] = useDraft<Draft>(place);
  const text = draft?.text ?? "";
  const [sending, setSending] = useState(false);
  const submit = async (policy: Policy) => {
    const message = messageOf(draft, policy);
    if (!message || sending) return;
    setSending(true);
    setDraft({ text, tried: message });
    try {
      await send(message);
      setDraft((before) => after(before, message));
    } catch {
      // The text is still there, and send has said why.
    } finally {
      setSending(false);
    }
  };
  return (
    <form
      className="flex items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        void submit(busy ? "steer" : "enqueue");
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
        readOnly={sending}
        onChange={(event) => setDraft((before) => edited(before, event.target.value))}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          void submit(busy ? "steer" : "enqueue");
        }}
      />
      {busy && text.trim() && <Button className="h-9 max-sm:h-11" icon={<ListEnd aria-hidden />} aria-label="Send after this turn" title="Send after this turn" disabled={sending} onClick={() => void submit("enqueue")} />}
      {busy && !text.trim() && stop ? (
        <Button key="stop" look="danger" className="h-9 max-sm:h-11" icon={<Square aria-hidden />} onClick={firstClick(stop)}>
          Stop
        </Button>
      ) : (
        <Button key="send" look="main" type="submit" className="h-9 max-sm:h-11" icon={<SendHorizontal aria-hidden />} disabled={!text.trim()} busy={sending && "Sending …"}>
          {busy ? "Steer" : "Send"}
        </Button>
      )}
    </form>
  );
}
