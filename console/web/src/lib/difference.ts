import { diffLines } from "diff";

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

/** The lines of two texts, with what was added and removed. */
export function lineDiff(before: string, after: string): DiffLine[] {
  const lines: DiffLine[] = [];
  // A last line without an end is the same line if others follow it.
  if (before && after && !before.endsWith("\n") && !after.endsWith("\n")) return lineDiff(`${before}\n`, `${after}\n`);
  for (const part of diffLines(before, after, { stripTrailingCr: true })) {
    const kind = part.added ? "added" : part.removed ? "removed" : "same";
    for (const text of part.value.replace(/\n$/, "").split("\n")) lines.push({ kind, text });
  }
  return lines;
}

/** A value as the text of which differences are shown. */
export const asText = (value: unknown): string => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Leaves out what is the same, but for some lines around each change. null stands for a gap. */
export function withContext(lines: DiffLine[], around = 3): (DiffLine | null)[] {
  const keep = lines.map((line) => line.kind !== "same");
  const near = keep.map((_, at) => keep.slice(Math.max(0, at - around), at + around + 1).some(Boolean));
  const shown: (DiffLine | null)[] = [];
  const alone = (at: number) => (near[at - 1] ?? true) && (near[at + 1] ?? true); // a mark in its place would save nothing
  lines.forEach((line, at) => {
    if (near[at] || alone(at)) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}
