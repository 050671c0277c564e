import { useMemo } from "react";
import { cx } from "@/lib/cx";
import { asText, lineDiff, withContext } from "@/lib/difference";
import { plain } from "@/lib/text";

const marks = { same: " ", added: "+", removed: "−" };
const words = { same: "", added: "added: ", removed: "removed: " };
const looks = { same: "text-soft", added: "bg-done-tint text-done", removed: "bg-bad-tint text-bad" };

/** What changed between two values, line by line. */
export function Diff({ before, after, label = "Difference" }: { before: unknown; after: unknown; label?: string }) {
  const lines = useMemo(() => withContext(lineDiff(asText(before), asText(after))), [before, after]);
  if (!lines.some((line) => line && line.kind !== "same")) return <p className="text-soft">Nothing changed.</p>;
  return (
    <div role="figure" aria-label={label} className="overflow-x-auto rounded border border-line bg-panel py-1 font-mono text-xs leading-5">
      {lines.map((line, at) =>
        line ? (
          <div key={at} className={cx("flex gap-2 px-3 whitespace-pre-wrap", looks[line.kind])}>
            <span aria-hidden className="select-none">
              {marks[line.kind]}
            </span>
            <span className="sr-only">{words[line.kind]}</span>
            <bdi>{plain(line.text)}</bdi>
          </div>
        ) : (
          <div key={at} aria-label="unchanged lines" className="px-3 text-faint select-none">
            ⋯
          </div>
        ),
      )}
    </div>
  );
}
