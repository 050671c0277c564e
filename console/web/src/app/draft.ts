import { useCallback, useSyncExternalStore } from "react";
import { useMe } from "@/api/queries";

// What people have begun to write outlives a page, but only for whoever wrote it.

const prefix = "perdure-draft ";
const parsed = new Map<string, { text: string | null; value: unknown }>(); // by key, so that a draft that stays the same is the same object
const unsaved = new Set<string>(); // keys whose drafts last as long as the page: storage is forbidden or full
const listeners = new Set<() => void>();
const others = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel("perdure-drafts"); // tabs of this browser

interface Person {
  tenant?: string;
  subject: string;
}

/** The name of a draft of one person. */
export const draftKey = (who: Person, name: string) => `${prefix}${JSON.stringify([who.tenant ?? "", who.subject])} ${name}`;

function stored(key: string): string | null {
  if (unsaved.has(key)) return parsed.get(key)?.text ?? null;
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

export function readDraft<T>(key: string): T | undefined {
  const text = stored(key);
  const known = parsed.get(key);
  if (known?.text === text) return known.value as T | undefined;
  let value: unknown;
  try {
    value = text === null ? undefined : JSON.parse(text);
  } catch {
    value = undefined;
  }
  parsed.set(key, { text, value });
  return value as T | undefined;
}

type Change<T> = T | undefined | ((before: T | undefined) => T | undefined);

export function changeDraft<T>(key: string, change: Change<T>) {
  const value = typeof change === "function" ? (change as (before: T | undefined) => T | undefined)(readDraft<T>(key)) : change;
  const text = value === undefined ? null : JSON.stringify(value);
  try {
    sessionStorage.removeItem(key); // also if there is no room for the new text: the old one is none any more
    if (text !== null) sessionStorage.setItem(key, text);
    unsaved.delete(key);
  } catch {
    unsaved.add(key);
  }
  parsed.set(key, { text, value });
  tell();
}

const tell = () => {
  for (const one of listeners) one();
};

/** Removes drafts: all of them, or all but those of one person. */
function dropDrafts(but?: Person) {
  const mine = but && draftKey(but, "");
  const goes = (key: string) => key.startsWith(prefix) && !(mine && key.startsWith(mine));
  for (const key of [...parsed.keys()]) if (goes(key)) parsed.delete(key);
  try {
    for (const key of Object.keys(sessionStorage)) if (goes(key)) sessionStorage.removeItem(key);
  } catch {
    // There are none.
  }
  tell();
}

/** Removes all drafts, in every tab of this browser. Other tabs show that nobody is signed in any more. */
export function forgetDrafts() {
  dropDrafts();
  others?.postMessage("forget");
}

/** Removes the drafts of everyone but the person who has signed in. Other tabs of this browser now act as that person too, and show it. */
export function keepDraftsOf(who: Person) {
  dropDrafts(who);
  others?.postMessage("signed in");
}

if (others)
  others.onmessage = ({ data }) => {
    if (data === "forget") dropDrafts();
    location.reload();
  };

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** What the person who is signed in has begun to write. It outlives the page until it is set to undefined. */
export function useDraft<T>(name: string): [T | undefined, (change: Change<T>) => void] {
  const { data: me } = useMe();
  const key = me ? draftKey(me, name) : "";
  const value = useSyncExternalStore(subscribe, () => (key ? readDraft<T>(key) : undefined));
  const change = useCallback((next: Change<T>) => (key ? changeDraft(key, next) : undefined), [key]);
  return [value, change];
}
