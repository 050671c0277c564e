import { lazy, Suspense } from "react";
import { inputClass } from "./Field";

export interface CodeProps {
  value: string;
  onChange?(value: string): void;
  label: string;
  language?: "json" | "text";
  height?: string;
}

const Editor = lazy(() => import("./CodeEditor"));

/** An editor for JSON, or a view of it without onChange. The editor is loaded when it is first needed. */
export function Code(props: CodeProps) {
  const { value, onChange, label, height = "12rem" } = props;
  return (
    <Suspense
      fallback={
        <textarea
          aria-label={label}
          className={`${inputClass} font-mono text-xs`}
          style={{ height }}
          value={value}
          readOnly={!onChange}
          onChange={(e) => onChange?.(e.target.value)}
        />
      }
    >
      <Editor {...props} />
    </Suspense>
  );
}
