import { useCallback, useState } from "react";

const prefix = "perdure-draft ";

function read<T>(key: string): T | undefined {
  try {
    const kept = sessionStorage.getItem(prefix + key);
    return kept === null ? undefined : (JSON.parse(kept) as T);
  } catch {
    return undefined; // storage may be forbidden
  }
}

function write(key: string, value: unknown) {
  try {
    if (value === undefined) sessionStorage.removeItem(prefix + key);
    else sessionStorage.setItem(prefix + key, JSON.stringify(value));
  } catch {
    // It lasts until the page is closed.
  }
}

/** What someone has begun to write. It outlives the page until it is set to undefined. */
export function useDraft<T>(key: string): [T | undefined, (change: T | undefined | ((before: T | undefined) => T | undefined)) => void] {
  const [draft, setDraft] = useState(() => ({ key, value: read<T>(key) }));
  if (draft.key !== key) setDraft({ key, value: read<T>(key) });
  const change = useCallback(
    (next: T | undefined | ((before: T | undefined) => T | undefined)) =>
      setDraft((before) => {
        const old = before.key === key ? before.value : read<T>(key);
        const value = typeof next === "function" ? (next as (before: T | undefined) => T | undefined)(old) : next;
        write(key, value);
        return { key, value };
      }),
    [key],
  );
  return [draft.key === key ? draft.value : read<T>(key), change];
}
