import { ChevronRight } from "lucide-react";
import { memo, useState } from "react";
import { cx } from "@/lib/cx";
import { rawNumber } from "@/lib/exact";
import { folds } from "@/lib/folded";
import { bytes, count, cut, memberName, precise } from "@/lib/text";
import { Button } from "./Button";

/** JSON as a tree that opens and closes. open says how many levels are open at first; Infinity that nothing is folded or cut. */
export function Json({ value, open = 2, className }: { value: unknown; open?: number; className?: string }) {
  return (
    <div dir="ltr" className={cx("overflow-x-auto font-mono text-xs leading-5", className)}>
      <Node key={String(open)} value={value} open={open} />
    </div>
  );
}

interface NodeProps {
  name?: string;
  value: unknown;
  open: number;
}

const Node = memo(function Node({ name, value, open }: NodeProps) {
  const isList = Array.isArray(value);
  if (value === null || typeof value !== "object" || rawNumber(value) !== undefined || (isList ? value : Object.keys(value)).length === 0) {
    return (
      <div className="pl-4">
        <Name name={name} />
        <Leaf value={value} whole={open === Number.POSITIVE_INFINITY} />
      </div>
    );
  }
  return <Branch name={name} value={value} open={open} />;
});

const quotedText = (text: string) => `"${precise(text.replace(/["\\]/g, "\\$&"))}"`;

function Branch({ name, value, open }: { name?: string; value: object; open: number }) {
  const members = Object.entries(value);
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(open === Number.POSITIVE_INFINITY ? open : folds.members);
  const list = Array.isArray(value);
  return (
    <div>
      <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} className="flex items-center rounded text-left hover:bg-hover">
        <ChevronRight aria-hidden className={cx("size-4 shrink-0 text-faint", isOpen && "rotate-90")} />
        <Name name={name} />
        <span className="text-faint">
          {list ? "[" : "{"}
          {!isOpen && ` ${count(members.length)} ${list ? "]" : "}"}`}
        </span>
      </button>
      {isOpen && (
        <>
          <div className="ml-2 border-l border-line pl-1">
            {members.slice(0, shown).map(([key, one]) => (
              <Node key={key} name={list ? undefined : key} value={one} open={open - 1} />
            ))}
            {members.length > shown && (
              <Button look="quiet" size="small" onClick={() => setShown(shown + 10 * folds.members)}>
                {count(members.length - shown)} more
              </Button>
            )}
          </div>
          <div className="pl-4 text-faint">{list ? "]" : "}"}</div>
        </>
      )}
    </div>
  );
}

const Name = ({ name }: { name?: string }) => (name === undefined ? null : <bdi className="text-accent">{memberName(name)}: </bdi>);

/** A text in quotes. One of several lines has a bar at its side, so that no line of it looks like another member. */
function Leaf({ value, whole }: { value: unknown; whole: boolean }) {
  const [all, setAll] = useState(whole);
  if (typeof value === "string") {
    const shown = all ? { text: value, more: 0 } : cut(value, folds.text);
    return (
      <>
        {/[\n\r\u0085\u2028\u2029]/.test(shown.text) ? (
          <span dir="auto" className="outside my-0.5 ml-2 block border-l-2 border-line-strong pl-2 whitespace-pre-wrap text-done">
            {precise(shown.text)}
            {shown.more > 0 && "…"}
          </span>
        ) : (
          <span dir="auto" className="outside whitespace-pre-wrap text-done">
            {shown.more > 0 ? `${quotedText(shown.text).slice(0, -1)}…` : quotedText(shown.text)}
          </span>
        )}
        {shown.more > 0 && (
          <Button look="quiet" size="small" onClick={() => setAll(true)}>
            Show all {bytes(value.length)}
          </Button>
        )}
      </>
    );
  }
  const raw = rawNumber(value);
  if (raw !== undefined) return <span className="text-work">{raw}</span>;
  if (typeof value === "object" && value !== null) return <span className="text-faint">{Array.isArray(value) ? "[]" : "{}"}</span>;
  return <span className={typeof value === "number" ? "text-work" : "text-wait"}>{String(value)}</span>;
}
