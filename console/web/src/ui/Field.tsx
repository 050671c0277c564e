import { type ComponentProps, type ReactNode, useId } from "react";
import { cx } from "@/lib/cx";

export const inputClass =
  "h-8 w-full min-w-0 rounded border border-line-strong bg-panel px-2 text-text disabled:opacity-55 aria-invalid:border-bad max-sm:text-lg";

/** A label, what is entered, a hint, and what is wrong with it. children gets the ids that tie them together. */
export function Field(props: {
  label: string;
  hint?: ReactNode;
  error?: string;
  required?: boolean;
  children(ids: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }): ReactNode;
}) {
  const id = useId();
  const about = props.error || props.hint ? `${id}-about` : undefined;
  return (
    <div className="space-y-1">
      <label htmlFor={id} className="block font-medium">
        {props.label}
        {props.required && <span className="font-normal text-faint"> required</span>}
      </label>
      {props.children({ id, "aria-describedby": about, "aria-invalid": props.error ? true : undefined })}
      {about && (
        <p id={about} className={cx("text-xs", props.error ? "text-bad" : "text-soft")}>
          {props.error ?? props.hint}
        </p>
      )}
    </div>
  );
}

export const Input = ({ className, ...rest }: ComponentProps<"input">) => <input className={cx(inputClass, className)} {...rest} />;

export const Area = ({ className, ...rest }: ComponentProps<"textarea">) => (
  <textarea className={cx(inputClass, "h-auto min-h-20 py-1.5", className)} {...rest} />
);

export const Select = ({ className, children, ...rest }: ComponentProps<"select">) => (
  <select className={cx(inputClass, "pr-1", className)} {...rest}>
    {children}
  </select>
);
