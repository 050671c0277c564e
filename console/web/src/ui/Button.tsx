import type { ComponentProps, ReactNode } from "react";
import { cx } from "@/lib/cx";

type Look = "plain" | "main" | "quiet" | "danger";

const looks: Record<Look, string> = {
  plain: "border border-line bg-panel text-text hover:bg-hover",
  main: "border border-transparent bg-accent-fill text-on-accent hover:bg-accent-fill-hover",
  quiet: "border border-transparent text-soft hover:bg-hover hover:text-text",
  danger: "border border-line bg-panel text-bad hover:bg-bad-tint",
};

export interface ButtonProps extends ComponentProps<"button"> {
  look?: Look;
  size?: "small" | "normal";
  icon?: ReactNode;
  /** What is being done, while it is being done. The button does nothing meanwhile. */
  busy?: string | false;
}

export const buttonClass = (look: Look = "plain", size: "small" | "normal" = "normal", bare = false) =>
  cx(
    "inline-flex shrink-0 items-center justify-center gap-1.5 rounded font-medium whitespace-nowrap select-none",
    "disabled:cursor-not-allowed disabled:opacity-55 [&_svg]:size-4 [&_svg]:shrink-0",
    size === "small" ? "h-7 text-xs" : "h-8 text-sm",
    bare ? (size === "small" ? "w-7" : "w-8") : size === "small" ? "px-2" : "px-3",
    looks[look],
  );

/** What a click does unless it follows another one at once, which was for what was there before. */
export const firstClick = (act: () => void) => (click: { detail: number }) => {
  if (click.detail < 2) act();
};

export function Button({ look, size, icon, busy, children, className, disabled, type = "button", ...rest }: ButtonProps) {
  return (
    <button type={type} className={cx(buttonClass(look, size, !children), className)} disabled={disabled || !!busy} {...rest}>
      {icon}
      {busy || children}
    </button>
  );
}
