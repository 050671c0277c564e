import { useState } from "react";
import { aboutOf, type Ask } from "@/lib/ask";
import { foldedIn, folds } from "@/lib/folded";

/** What of an ask is folded. Nobody approves what they could not see. */
export interface Fold {
  /** How many values are not shown. */
  folded: number;
  /** How many levels are open. */
  open: number;
  unfold(): void;
}

export function useFold(ask: Ask): Fold {
  const [all, setAll] = useState(false);
  const folded = all ? 0 : foldedIn(aboutOf(ask));
  return { folded, open: folded ? folds.open : Number.POSITIVE_INFINITY, unfold: () => setAll(true) };
}
