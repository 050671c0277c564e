import { useState } from "react";
import { cx } from "@/lib/cx";
import { bytes, cut, oneLine, plain } from "@/lib/text";
import { Button } from "./Button";

/** Text from outside on one line. */
export const Line = ({ text, className }: { text: string; className?: string }) => (
  <bdi title={text.length > 60 ? oneLine(text, 2000) : undefined} className={cx("inline-block max-w-full truncate align-bottom", className)}>
    {oneLine(text)}
  </bdi>
);

/** Text from outside as it is, but for characters that deceive. Long texts are cut until asked for. */
export function Text({ text, limit = 6000, mono, className }: { text: string; limit?: number; mono?: boolean; className?: string }) {
  const [all, setAll] = useState(false);
  const shown = all ? { text, more: 0 } : cut(text, limit);
  return (
    <div className={className}>
      <div dir="auto" className={cx("outside whitespace-pre-wrap", mono && "font-mono text-xs")}>
        {plain(shown.text)}
        {shown.more > 0 && "…"}
      </div>
      {shown.more > 0 && (
        <Button look="quiet" size="small" className="mt-1 -ml-2" onClick={() => setAll(true)}>
          Show all {bytes(text.length)}
        </Button>
      )}
    </div>
  );
}
