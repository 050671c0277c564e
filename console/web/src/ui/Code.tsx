import { lazily } from "@/app/lazily";
import { inputClass } from "./Field";

export interface CodeProps {
  value: string;
  onChange?(value: string): void;
  label: string;
  language?: "json" | "text";
  height?: string;
}

const Plain = ({ value, onChange, label, height = "12rem" }: CodeProps) => (
  <textarea aria-label={label} className={`${inputClass} font-mono text-xs`} style={{ height }} value={value} readOnly={!onChange} onChange={(e) => onChange?.(e.target.value)} />
);

/** An editor for JSON, or a view of it without onChange. The editor is loaded when it is first needed. */
export const Code = lazily(() => import("./CodeEditor"), Plain);
