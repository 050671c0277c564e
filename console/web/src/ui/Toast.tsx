import { CircleCheck, CircleX, X } from "lucide-react";
import { Toast as Radix } from "radix-ui";
import { useSyncExternalStore } from "react";
import { Problem } from "@/api/client";
import { cx } from "@/lib/cx";
import { Button } from "./Button";

interface Notice {
  id: number;
  text: string;
  more?: string;
  bad?: boolean;
}

let notices: Notice[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function change(next: Notice[]) {
  notices = next;
  for (const tell of listeners) tell();
}

/** Reports what was just done. */
export const say = (text: string, more?: string) => change([...notices, { id: ++lastId, text, more }].slice(-4));

/** Reports that what was just tried has failed. */
export function sayError(text: string, error: unknown) {
  const more = error instanceof Problem ? error.detail || error.title : error instanceof Error ? error.message : String(error);
  change([...notices, { id: ++lastId, text, more, bad: true }].slice(-4));
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** Where notices appear. */
export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => notices);
  return (
    <Radix.Provider swipeDirection="right" label="Notice">
      {shown.map((n) => (
        <Radix.Root
          key={n.id}
          duration={n.bad ? 12_000 : 4_000}
          onOpenChange={(open) => !open && change(notices.filter((other) => other.id !== n.id))}
          className="flex items-start gap-2 rounded border border-line bg-raised py-2 pr-2 pl-3 shadow-float"
        >
          <span className={cx("pt-0.5 [&_svg]:size-4", n.bad ? "text-bad" : "text-done")}>{n.bad ? <CircleX aria-hidden /> : <CircleCheck aria-hidden />}</span>
          <div className="min-w-0 flex-1">
            <Radix.Title className="font-medium">{n.text}</Radix.Title>
            {n.more && <Radix.Description className="outside text-soft">{n.more}</Radix.Description>}
          </div>
          <Radix.Close asChild>
            <Button look="quiet" size="small" icon={<X aria-hidden />} aria-label="Close" />
          </Radix.Close>
        </Radix.Root>
      ))}
      <Radix.Viewport className="fixed right-2 bottom-16 z-60 flex w-[min(24rem,calc(100vw-1rem))] flex-col gap-2 sm:right-4 sm:bottom-4" />
    </Radix.Provider>
  );
}
