import { DropdownMenu } from "radix-ui";
import type { ReactElement, ReactNode } from "react";
import { cx } from "@/lib/cx";

export interface MenuItem {
  label: ReactNode;
  icon?: ReactNode;
  danger?: boolean;
  checked?: boolean;
  disabled?: boolean;
  onSelect(): void;
}

/** A menu below its trigger, which is a button. */
export function Menu({ trigger, items, align = "end", label }: { trigger: ReactElement; items: (MenuItem | "line")[]; align?: "start" | "end"; label: string }) {
  return (
    <DropdownMenu.Root>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          aria-label={label}
          align={align}
          sideOffset={4}
          collisionPadding={8}
          className="z-50 max-h-80 min-w-44 overflow-y-auto rounded border border-line bg-raised p-1 shadow-float"
        >
          {items.map((item, at) =>
            item === "line" ? (
              <DropdownMenu.Separator key={at} className="my-1 h-px bg-line" />
            ) : (
              <DropdownMenu.Item
                key={at}
                disabled={item.disabled}
                onSelect={item.onSelect}
                className={cx(
                  "flex min-h-8 cursor-pointer items-center gap-2 rounded px-2 outline-none select-none data-highlighted:bg-hover [&_svg]:size-4",
                  "data-disabled:cursor-not-allowed data-disabled:opacity-55",
                  item.danger ? "text-bad" : "text-text",
                )}
              >
                {item.icon}
                <span className="min-w-0 flex-1 truncate">{item.label}</span>
                {item.checked && <span aria-label="chosen">✓</span>}
              </DropdownMenu.Item>
            ),
          )}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}
