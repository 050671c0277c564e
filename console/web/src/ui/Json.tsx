import { ChevronRight } from "lucide-react";
import { memo, useState } from "react";
import { cx } from "@/lib/cx";
import { rawNumber } from "@/lib/exact";
import { bytes, count, cut, plain } from "@/lib/text";
import { Button } from "./Button";

const pageOf = 100; // members shown at once
const longText = 800;

/** JSON as a tree that opens and closes. open says how many levels are open at first. */
export function Json({ value, open = 2, className }: { value: unknown; open?: number; className?: string }) {
  return (
    <div dir="ltr" className={cx("overflow-x-auto font-mono text-xs leading-5", className)}>
      <Node value={value} open={open} />
    </div>
  );
}

const Node = memo(function Node({ name, value, open }: { name?: string; value: unknown; open: number }) {
  const isList = Array.isArray(value);
  if (value === null || typeof value !== "object" || rawNumber(value) !== undefined || (isList ? value : Object.keys(value)).length === 0) {
    return (
      <div className="pl-4">
        <Name name={name} />
        <Leaf value={value} />
      </div>
    );
  }
  return <Branch name={name} value={value} open={open} />;
});

function Branch({ name, value, open }: { name?: string; value: object; open: number }) {
  const members = Object.entries(value);
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(pageOf);
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
              <Button look="quiet" size="small" onClick={() => setShown(shown + 10 * pageOf)}>
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

const Name = ({ name }: { name?: string }) => (name === undefined ? null : <bdi className="text-accent">{plain(name)}: </bdi>);

function Leaf({ value }: { value: unknown }) {
  const [all, setAll] = useState(false);
  if (typeof value === "string") {
    const shown = all ? { text: value, more: 0 } : cut(value, longText);
    return (
      <>
        <span dir="auto" className="outside whitespace-pre-wrap text-done">
          "{plain(shown.text)}
          {shown.more > 0 ? "…" : '"'}
        </span>
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
