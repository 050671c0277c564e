import { type Held, lazily } from "@/app/lazily";
import type { CodeProps } from "./CodeEditor";
import { inputClass } from "./Field";

const Plain = ({ value, onChange, label, height = "12rem", hold }: CodeProps & Held) => (
  <textarea
    aria-label={label}
    className={`${inputClass} font-mono text-xs`}
    style={{ height }}
    value={value}
    readOnly={!onChange}
    onChange={(e) => onChange?.(e.target.value)}
    onFocus={() => hold(true)}
    onBlur={(e) => document.activeElement !== e.target && hold(false)} // the window may have lost the focus, and the editor not
  />
);

/** An editor for JSON, or a view of it without onChange. The editor is loaded when it is first needed. */
export const Code = lazily(() => import("./CodeEditor"), Plain);
