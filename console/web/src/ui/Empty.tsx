import type { ReactNode } from "react";
import { useEffect, useState } from "react";
import { Problem } from "@/api/client";
import { Button } from "./Button";
import { Command } from "./Copy";

/** What a page says when it has nothing to show, and what to do next. */
export function Empty({ title, children, command, icon }: { title: string; children?: ReactNode; command?: string; icon?: ReactNode }) {
  return (
    <div className="mx-auto flex max-w-md flex-col items-center gap-3 px-4 py-16 text-center">
      {icon && <div className="text-faint [&_svg]:size-6">{icon}</div>}
      <h2 className="text-lg">{title}</h2>
      {children && <div className="text-soft">{children}</div>}
      {command && <Command text={command} />}
    </div>
  );
}

/** Says that something is being read, once that takes longer than a moment. */
export function Loading({ what }: { what: string }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), 200);
    return () => clearTimeout(timer);
  }, []);
  if (!slow) return null;
  return (
    <p role="status" className="animate-pulse px-4 py-8 text-center text-soft">
      Reading {what} …
    </p>
  );
}

/** An error with what to do about it. */
export function Failed({ error, again }: { error: unknown; again?: () => void }) {
  const problem = error instanceof Problem ? error : undefined;
  return (
    <div role="alert" className="m-4 flex flex-wrap items-center gap-3 rounded border border-line bg-bad-tint px-4 py-3 text-bad">
      <div className="min-w-0 flex-1">
        <p className="font-medium">{problem?.title ?? "This page has a fault"}</p>
        <p className="outside text-text">{problem?.detail ?? (error instanceof Error ? error.message : String(error))}</p>
      </div>
      {again && (
        <Button size="small" onClick={again}>
          Try again
        </Button>
      )}
    </div>
  );
}
