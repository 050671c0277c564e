import { type KeyboardEvent, type PointerEvent, type ReactNode, useState } from "react";

const least = 288;
const most = () => Math.max(least, Math.round(window.innerWidth * 0.7));
const fit = (width: number) => Math.min(Math.max(Math.round(width), least), most());

function kept(name: string): number | undefined {
  try {
    return Number(localStorage.getItem(`perdure-width ${name}`)) || undefined;
  } catch {
    return undefined;
  }
}

function keep(name: string, width: number) {
  try {
    localStorage.setItem(`perdure-width ${name}`, String(width));
  } catch {
    // It lasts as long as the page.
  }
}

/** A panel at the right whose width one drags, or changes by arrow keys at its edge. The width is kept. */
export function SidePanel({ name, children }: { name: string; children: ReactNode }) {
  const [chosen, setChosen] = useState(() => kept(name) ?? Math.min(480, window.innerWidth * 0.32));
  const width = fit(chosen);
  const set = (next: number) => {
    setChosen(fit(next));
    keep(name, fit(next));
  };
  const onPointerDown = (event: PointerEvent<HTMLDivElement>) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    event.preventDefault();
  };
  const onPointerMove = (event: PointerEvent<HTMLDivElement>) => {
    if (event.currentTarget.hasPointerCapture(event.pointerId)) set(window.innerWidth - event.clientX);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const to = { ArrowLeft: width + 24, ArrowRight: width - 24, Home: most(), End: least }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    set(to);
  };
  return (
    <div className="relative shrink-0 border-l border-line" style={{ width }}>
      <div
        role="separator"
        aria-orientation="vertical"
        aria-label={`Width of the ${name}`}
        aria-valuenow={width}
        aria-valuemin={least}
        aria-valuemax={most()}
        tabIndex={0}
        className="absolute inset-y-0 -left-1 z-10 w-2 cursor-col-resize touch-none hover:bg-accent/30 focus-visible:bg-accent/30"
        onPointerDown={onPointerDown}
        onPointerMove={onPointerMove}
        onKeyDown={onKeyDown}
        onDoubleClick={() => set(480)}
      />
      {children}
    </div>
  );
}
