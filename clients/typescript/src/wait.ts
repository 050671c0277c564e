/** How often to try again, and after what time. */
export interface Attempts {
  /** How often in a row to try again. */
  maxAttempts?: number;
  /** How long to wait before the first one. It doubles each time, up to 30 times as long. */
  delayMs?: number;
}

/** The time before an attempt, with some chance in it so that not all clients of a server return at the same moment. */
export function backOff(attempt: number, delayMs: number): number {
  const ms = delayMs * Math.min(2 ** attempt, 30);
  return ms / 2 + (Math.random() * ms) / 2;
}

/** Waits, but not longer than until the network is back. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const page = typeof globalThis.addEventListener === "function" ? globalThis : undefined;
    const timer = setTimeout(end, ms);
    function end() {
      clearTimeout(timer);
      page?.removeEventListener("online", end);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    }
    page?.addEventListener("online", end);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** A signal that ends with another one, and when nothing was heard for some time. */
export class Watchdog {
  private readonly controller = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  readonly signal = this.controller.signal;
  private readonly cut = () => this.controller.abort(this.outer?.reason);

  constructor(
    public ms: number,
    private readonly outer?: AbortSignal,
  ) {
    if (outer?.aborted) this.cut();
    outer?.addEventListener("abort", this.cut);
    this.heard();
  }

  heard() {
    this.rest();
    this.timer = setTimeout(this.cut, this.ms);
  }

  /** Stops counting time. The other signal still counts. */
  rest() {
    clearTimeout(this.timer);
  }

  /** Stops watching. Whatever still uses the signal is cut off. */
  end() {
    this.rest();
    this.outer?.removeEventListener("abort", this.cut);
    this.cut();
  }
}
