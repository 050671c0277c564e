import type { ReactNode } from "react";
import { useEffect } from "react";

/** A page with its heading, which also names the tab of the browser. */
export function Page({ title, heading, actions, children }: { title: string; heading?: ReactNode; actions?: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} – Perdure`;
  }, [title]);
  return (
    <>
      <header className="flex min-h-12 shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-panel px-4 py-2">
        {heading ?? <h1 className="text-lg">{title}</h1>}
        <div className="ml-auto flex items-center gap-2">{actions}</div>
      </header>
      {children}
    </>
  );
}
