import { rawNumber } from "./exact";

/** How much of a value is shown before someone asks for more. */
export const folds = { open: 4, members: 100, text: 800 };

const atOnce = { values: 1500, text: 20_000 }; // this much is shown without a fold to who decides about it

const isLeaf = (value: unknown): boolean => value === null || typeof value !== "object" || rawNumber(value) !== undefined;

function measure(value: unknown, sum = { values: 0, text: 0 }): typeof sum {
  sum.values++;
  if (typeof value === "string") sum.text += value.length;
  else if (!isLeaf(value))
    for (const [name, one] of Object.entries(value as object)) {
      sum.text += name.length;
      measure(one, sum);
    }
  return sum;
}

const fits = (value: unknown) => {
  const { values, text } = measure(value);
  return values <= atOnce.values && text <= atOnce.text;
};

/** How many values of a large one are folded at first, or cut. Nothing of a smaller one is. */
export const foldedIn = (value: unknown): number => (fits(value) ? 0 : hidden(value, folds.open));

function hidden(value: unknown, open: number): number {
  if (typeof value === "string") return value.length > folds.text ? 1 : 0;
  if (isLeaf(value)) return 0;
  const members = Object.values(value as object);
  if (open <= 0) return measure(value).values - 1;
  return members.reduce<number>((sum, one, at) => sum + (at < folds.members ? hidden(one, open - 1) : measure(one).values), 0);
}
