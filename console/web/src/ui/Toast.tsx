import { CircleAlert, CircleCheck, CircleX, X } from "lucide-react";
import { Toast as Radix } from "radix-ui";
import { useSyncExternalStore } from "react";
import { Problem } from "@/api/client";
import { useConnection } from "@/app/news";
import { cx } from "@/lib/cx";
import { Button } from "./Button";

type Look = "done" | "refused" | "bad";

interface Notice {
  id: number;
  text: string;
  more?: string;
  look: Look;
}

const looks = {
  done: { icon: <CircleCheck aria-hidden />, colour: "text-done", duration: 4_000 },
  refused: { icon: <CircleAlert aria-hidden />, colour: "text-ask", duration: 8_000 },
  bad: { icon: <CircleX aria-hidden />, colour: "text-bad", duration: 12_000 },
};

let notices: Notice[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function change(next: Notice[]) {
  notices = next;
  for (const tell of listeners) tell();
}

const add = (look: Look, text: string, more?: string) => change([...notices, { id: ++lastId, text, more, look }].slice(-4));

/** Reports what was just done. */
export const say = (text: string, more?: string) => add("done", text, more);

/** Says why the page has not done what was just tried. */
export const sayRefused = (text: string, more?: string) => add("refused", text, more);

/** Reports that what was just tried has failed. */
export function sayError(text: string, error: unknown) {
  const more = error instanceof Problem ? error.detail || error.title : error instanceof Error ? error.message : String(error);
  add("bad", text, more);
}

/** Takes away what has not worked, once another page is shown. */
export const dropFailures = () => change(notices.filter(({ look }) => look === "done"));

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** Where notices appear: at the top, since buttons and what is written are at the bottom. */
export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => notices);
  const lost = useConnection() === "lost"; // which the page says at its top
  return (
    <Radix.Provider swipeDirection="up" label="Notice">
      {shown.map((n) => (
        <Radix.Root
          key={n.id}
          duration={looks[n.look].duration}
          onOpenChange={(open) => !open && change(notices.filter((other) => other.id !== n.id))}
          className="flex items-start gap-2 rounded border border-line bg-raised py-2 pr-2 pl-3 shadow-float"
        >
          <span className={cx("pt-0.5 [&_svg]:size-4", looks[n.look].colour)}>{looks[n.look].icon}</span>
          <div className="min-w-0 flex-1">
            <Radix.Title className="font-medium">{n.text}</Radix.Title>
            {n.more && <Radix.Description className="outside text-soft">{n.more}</Radix.Description>}
          </div>
          <Radix.Close asChild>
            <Button look="quiet" size="small" icon={<X aria-hidden />} aria-label="Close" />
          </Radix.Close>
        </Radix.Root>
      ))}
      <Radix.Viewport className={cx("fixed inset-x-0 z-60 mx-auto flex w-[min(24rem,calc(100vw-1rem))] flex-col gap-2", lost ? "top-20 sm:top-14" : "top-2")} />
    </Radix.Provider>
  );
}
