import { RotateCw, UnplugIcon } from "lucide-react";
import { type ComponentType, useEffect, useState, useSyncExternalStore } from "react";
import { Button } from "@/ui/Button";
import { newBuild, reloadFor } from "./build";

// Parts of the page have files of their own. One that does not come, because the network is gone or the
// server has another build by now, leaves the rest of the page as it is.

interface Part {
  load(): Promise<void>;
}

const missing = new Set<Part>();
const listeners = new Set<() => void>();

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

export interface Held {
  /** Keeps what stands in where it is, even if the file has come. */
  hold(on: boolean): void;
}

/** A component whose file is loaded when it is needed first. Until it is there, Waiting stands in for it, and for as long as Waiting holds on, so that nobody's keys are lost in between. */
export function lazily<P extends object>(file: () => Promise<{ default: ComponentType<P> }>, Waiting: ComponentType<P & Held>) {
  let loaded: ComponentType<P> | undefined;
  let loading: Promise<void> | undefined;
  const part: Part = {
    load() {
      if (loaded) return Promise.resolve();
      loading ??= file()
        .then(
          (module) => {
            loaded = module.default;
            missing.delete(part);
          },
          async () => {
            missing.add(part);
            const entry = await newBuild();
            if (entry) reloadFor(entry);
          },
        )
        .finally(() => {
          loading = undefined;
          for (const tell of listeners) tell();
        });
      return loading;
    },
  };
  const Lazy = (props: P) => {
    const Loaded = useSyncExternalStore(subscribe, () => loaded);
    const [held, hold] = useState(false);
    useEffect(() => void part.load(), []);
    return Loaded && !held ? <Loaded {...props} /> : <Waiting {...props} hold={hold} />;
  };
  return Object.assign(Lazy, { preload: part.load });
}

/** Loads what is missing. */
export const loadMissing = () => Promise.all([...missing].map((part) => part.load()));

const again = 5000; // ms until it is tried again by itself

/** Says that parts of the page are missing, and tries again. */
export function MissingParts() {
  const many = useSyncExternalStore(subscribe, () => missing.size);
  const [busy, setBusy] = useState(false);
  const retry = async () => {
    setBusy(true);
    await loadMissing();
    setBusy(false);
  };
  useEffect(() => {
    if (!many) return;
    const timer = setInterval(() => void loadMissing(), again);
    return () => clearInterval(timer);
  }, [many]);
  if (!many) return null;
  return (
    <div role="alert" className="fixed inset-x-0 bottom-16 z-50 mx-auto flex w-fit max-w-[90%] items-center gap-3 rounded border border-line bg-raised px-3 py-2 shadow-float sm:bottom-4">
      <UnplugIcon aria-hidden className="size-4 shrink-0 text-bad" />
      <p>A part of this page could not be loaded. What you have written is kept.</p>
      <Button size="small" icon={<RotateCw aria-hidden />} busy={busy && "Loading …"} onClick={() => void retry()}>
        Try again
      </Button>
    </div>
  );
}
