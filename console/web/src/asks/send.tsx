import { Kbd } from "@/ui/Kbd";

/** Sends on Ctrl+Enter or ⌘+Enter, so that an answer needs no mouse. */
export const onSend = (send: () => void) => (event: { key: string; ctrlKey: boolean; metaKey: boolean; preventDefault(): void; stopPropagation(): void }) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.stopPropagation(); // an editor would begin a line
  send();
};

export const SendKeys = () => (
  <span className="hidden items-center gap-1 text-xs text-faint sm:flex">
    <Kbd>Ctrl</Kbd>
    <Kbd>Enter</Kbd>
  </span>
);
