import { Tabs as Radix } from "radix-ui";
import { type ReactNode, useEffect, useRef } from "react";

export interface Tab {
  id: string;
  label: string;
  count?: number;
  icon?: ReactNode;
}

/** A row of tabs. What they show are TabPanel children. */
export function Tabs({ tabs, value, onChange, children, label }: { tabs: Tab[]; value: string; onChange(id: string): void; children: ReactNode; label: string }) {
  const list = useRef<HTMLDivElement>(null);
  // On a phone, or beside a panel, the tab that is shown may be beyond the edge.
  useEffect(() => {
    const look = () => void list.current?.querySelector("[data-state=active]")?.scrollIntoView({ block: "nearest", inline: "center" }); // it returns a promise in newer browsers
    const sizes = new ResizeObserver(look); // it begins with a look
    if (list.current) sizes.observe(list.current);
    return () => sizes.disconnect();
  }, [value]);
  return (
    <Radix.Root value={value} onValueChange={onChange} className="flex min-h-0 flex-1 flex-col">
      <Radix.List ref={list} aria-label={label} className="flex shrink-0 gap-1 overflow-x-auto border-b border-line px-2 [scrollbar-width:none]">
        {tabs.map((tab) => (
          <Radix.Trigger
            key={tab.id}
            value={tab.id}
            className="-mb-px flex h-9 shrink-0 items-center gap-1.5 border-b-2 border-transparent px-2 text-soft hover:text-text data-[state=active]:border-accent data-[state=active]:font-medium data-[state=active]:text-text [&_svg]:size-4"
          >
            {tab.icon}
            {tab.label}
            {tab.count !== undefined && tab.count > 0 && <span className="text-xs text-faint tabular-nums">{tab.count}</span>}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {children}
    </Radix.Root>
  );
}

export const TabPanel = ({ id, children, className }: { id: string; children: ReactNode; className?: string }) => (
  <Radix.Content value={id} className={className ?? "min-h-0 flex-1 overflow-y-auto"}>
    {children}
  </Radix.Content>
);
