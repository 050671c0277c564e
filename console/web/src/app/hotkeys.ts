import { useEffect, useRef } from "react";

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"));

let before = { key: "", at: 0 };
let last = before;

window.addEventListener(
  "keydown",
  (event) => {
    before = last;
    last = typing(event.target) ? { key: "", at: 0 } : { key: event.key, at: event.timeStamp };
  },
  true,
);

/**
 * Calls handlers by key while the component is shown: "j", "/", "Escape", or two keys in a row as
 * "g t". Nothing happens while someone types, or with Ctrl, Alt or Meta; Escape always counts,
 * and Enter on a button or link is for that.
 */
export function useHotkeys(handlers: Record<string, (event: KeyboardEvent) => void>) {
  const current = useRef(handlers);
  current.current = handlers;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
      if (event.key !== "Escape" && typing(event.target)) return;
      if (event.key === "Enter" && event.target instanceof Element && event.target.closest("button, a[href], summary")) return;
      if (document.querySelector('[role="dialog"],[role="menu"]')) return;
      const both = `${before.key} ${event.key}`;
      const name = event.timeStamp - before.at < 1200 && current.current[both] ? both : event.key;
      const handler = current.current[name];
      if (!handler) return;
      event.preventDefault();
      handler(event);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
