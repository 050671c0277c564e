import { own } from "@/lib/own";
import { oneLine } from "@/lib/text";

const kinds: Record<string, string> = {
  step: "ran",
  intent: "may have run",
  spawned: "started a child",
};

const shown = 50;

/** What is not undone. */
export function Effects({ effects, more, what }: { effects: { seq: number; kind: string; path?: string }[]; more?: boolean; what: string }) {
  return (
    <div className="space-y-2">
      <p>{what}</p>
      <ul aria-label="What is not undone" className="max-h-56 overflow-y-auto rounded border border-line bg-panel py-1">
        {effects.slice(0, shown).map((effect) => (
          <li key={effect.seq} className="flex gap-2 px-3 py-0.5 text-xs">
            <span className="w-9 shrink-0 text-right text-faint tabular-nums">{effect.seq}</span>
            <bdi className="min-w-0 truncate font-mono">{oneLine(effect.path ?? "", 160)}</bdi>
            <span className="ml-auto shrink-0 text-soft">{own(kinds, effect.kind) ?? effect.kind}</span>
          </li>
        ))}
        {(more || effects.length > shown) && <li className="px-3 py-0.5 text-xs text-faint">{effects.length > shown ? `and ${effects.length - shown} more` : "and more"}</li>}
      </ul>
    </div>
  );
}
