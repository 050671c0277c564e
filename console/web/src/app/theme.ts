import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const stored = "perdure-theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let theme = read();

function read(): Theme {
  try {
    const said = localStorage.getItem(stored);
    return said === "light" || said === "dark" ? said : "system";
  } catch {
    return "system"; // storage may be forbidden
  }
}

function apply() {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const tell of listeners) tell();
}

export function setTheme(next: Theme) {
  theme = next;
  try {
    if (next === "system") localStorage.removeItem(stored);
    else localStorage.setItem(stored, next);
  } catch {
    // It lasts until the page is closed.
  }
  apply();
}

apply();
systemDark.addEventListener("change", apply);

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

export const useTheme = () => useSyncExternalStore(subscribe, () => theme);
export const useDark = () => useSyncExternalStore(subscribe, () => (theme === "system" ? systemDark.matches : theme === "dark"));
