import type { ComponentProps, ReactNode } from "react";
import { cx } from "@/lib/cx";

/** A plain table for what fits on a page. Long lists use virtual rows. */
export function Table({ head, children, label }: { head: ReactNode[]; children: ReactNode; label: string }) {
  return (
    <div className="overflow-x-auto">
      <table aria-label={label} className="w-full border-collapse text-left">
        <thead>
          <tr className="border-b border-line">
            {head.map((cell, at) => (
              <th key={at} scope="col" className="h-8 px-3 text-xs font-medium whitespace-nowrap text-faint first:pl-4 last:pr-4">
                {cell || <span className="sr-only">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export const Row = ({ className, ...rest }: ComponentProps<"tr">) => <tr className={cx("border-b border-line last:border-0", className)} {...rest} />;

export const Cell = ({ className, ...rest }: ComponentProps<"td">) => (
  <td className={cx("h-10 px-3 align-middle first:pl-4 last:pr-4", className)} {...rest} />
);

/** A surface with a heading. */
export function Panel({ title, actions, children, className }: { title?: ReactNode; actions?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={cx("rounded border border-line bg-panel", className)}>
      {title && (
        <header className="flex min-h-10 items-center gap-2 border-b border-line px-4">
          <h2 className="flex-1 text-sm">{title}</h2>
          {actions}
        </header>
      )}
      {children}
    </section>
  );
}
