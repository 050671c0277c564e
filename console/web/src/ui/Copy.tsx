import { Check, Copy as CopyIcon } from "lucide-react";
import { useEffect, useState } from "react";
import { Button } from "./Button";

/** Copies a text. Without a label it is an icon. */
export function Copy({ text, label, what = "Copy" }: { text: string | (() => string); label?: string; what?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "string" ? text : text());
    setCopied(true);
  };
  const icon = copied ? <Check aria-hidden /> : <CopyIcon aria-hidden />;
  return (
    <Button look="quiet" size="small" icon={icon} aria-label={label ? undefined : what} title={what} onClick={() => void copy()}>
      {label && (copied ? "Copied" : label)}
    </Button>
  );
}

/** A command to type, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div className="flex max-w-full items-center gap-2 rounded border border-line bg-sunken py-0.5 pr-0.5 pl-3 font-mono text-xs">
      <code className="min-w-0 flex-1 py-1 text-left break-words whitespace-pre-wrap">{text}</code>
      <Copy text={text} what="Copy the command" />
    </div>
  );
}
