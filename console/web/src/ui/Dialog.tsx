import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { Button } from "./Button";

interface DialogProps {
  open: boolean;
  onClose(): void;
  title: string;
  /** What the dialog is about, in a sentence. */
  about?: ReactNode;
  children?: ReactNode;
  /** Buttons at its end, the main one last. */
  actions?: ReactNode;
  wide?: boolean;
}

export function Dialog({ open, onClose, title, about, children, actions, wide }: DialogProps) {
  return (
    <Radix.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-[rgb(10_12_16/0.45)]" />
        <Radix.Content
          {...(about ? {} : { "aria-describedby": undefined })}
          className={cx(
            "fixed z-50 flex max-h-[min(44rem,calc(100dvh-1rem))] flex-col rounded border border-line bg-raised shadow-float",
            "inset-x-2 bottom-2 sm:inset-x-auto sm:bottom-auto sm:top-[12dvh] sm:left-1/2 sm:-translate-x-1/2",
            wide ? "sm:w-[min(56rem,92vw)]" : "sm:w-[min(30rem,92vw)]",
          )}
        >
          <header className="flex items-start gap-2 px-4 pt-3">
            <Radix.Title className="flex-1 pt-1 text-lg">{title}</Radix.Title>
            <Radix.Close asChild>
              <Button look="quiet" size="small" icon={<X aria-hidden />} aria-label="Close" />
            </Radix.Close>
          </header>
          <div className="min-h-0 flex-1 space-y-3 overflow-y-auto px-4 pt-1 pb-4">
            {about && <Radix.Description className="text-soft">{about}</Radix.Description>}
            {children}
          </div>
          {actions && <footer className="flex justify-end gap-2 border-t border-line px-4 py-3">{actions}</footer>}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
