import { type ReactNode, useEffect, useRef } from "react";

/** Scrolls, and stays at the end while it is there. */
export function Ending({ watch, children }: { watch: unknown; children: ReactNode }) {
  const ref = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const box = ref.current;
    if (box && atEnd.current) box.scrollTop = box.scrollHeight;
  }, [watch]);
  return (
    <div
      ref={ref}
      className="min-h-0 flex-1 overflow-y-auto"
      onScroll={(event) => {
        const box = event.currentTarget;
        atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
      }}
    >
      <div className="mx-auto max-w-3xl space-y-4 px-4 py-6">{children}</div>
    </div>
  );
}
