import type { ReactNode } from "react";
import { useEffect } from "react";
import { oneLine } from "@/lib/text";

/** A page with its heading, which also names the tab of the browser. */
export function Page({ title, heading, actions, children }: { title: string; heading?: ReactNode; actions?: ReactNode; children: ReactNode }) {
  const shown = oneLine(title, 200);
  useEffect(() => {
    document.title = `${shown} – Perdure`;
  }, [shown]);
  return (
    <>
      <header className="flex min-h-12 shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-panel px-4 py-2">
        {heading ?? <h1 className="text-lg">{shown}</h1>}
        <div className="ml-auto flex items-center gap-2">{actions}</div>
      </header>
      {children}
    </>
  );
}
