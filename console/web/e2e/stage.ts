// What tests in a browser share: real servers with the flows of console/stage_test.go, and pages.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, onTestFailed } from "vitest";

export * from "./server";

const browserPath = process.env.PERDURE_BROWSER ?? "/usr/bin/chromium";

export interface View {
  width?: number;
  height?: number;
  dark?: boolean;
}

/** Gives tests browsers whose pages reach this machine only. Errors of pages fail the test. */
export function useBrowser() {
  let browser: Browser;
  let contexts: BrowserContext[] = [];
  let faults: string[] = [];
  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: browserPath,
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
    });
  });
  afterEach(async () => {
    for (const context of contexts) await context.close();
    contexts = [];
    const said = faults;
    faults = [];
    if (said.length) throw new Error(`the page had faults:\n${said.join("\n")}`);
  });
  afterAll(() => browser?.close());
  /** A page in a browser of its own, with its own cookies and storage. */
  return async function open({ width = 1280, height = 800, dark = false }: View = {}): Promise<Page> {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce" });
    contexts.push(context);
    const page = await context.newPage();
    page.setDefaultTimeout(30_000);
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => {
      // A browser that replaces coloured text in an editor tries to keep the colour as a style attribute, and is refused.
      const own = /Content Security Policy/.test(message.text()) && /style attributes/.test(message.text());
      if (message.type() === "error" && !own && /Content Security Policy|Uncaught/.test(message.text())) faults.push(message.text());
    });
    page.on("request", (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (hostname !== "127.0.0.1" && protocol.startsWith("http")) faults.push(`a request to ${hostname}`);
    });
    onTestFailed(async () => {
      const folder = process.env.CONSOLE_SHOTS;
      if (folder) await page.screenshot({ path: join(folder, `failed-${Date.now()}.png`) }).catch(() => {});
    });
    return page;
  };
}

/** Keeps a picture of a page, light and dark, if CONSOLE_SHOTS names a folder. */
export async function shoot(page: Page, name: string) {
  const folder = process.env.CONSOLE_SHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  const width = page.viewportSize()?.width ?? 0;
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    await page.waitForTimeout(300); // for a picture only
    await page.screenshot({ path: join(folder, `${name}-${width}-${scheme}.png`) });
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: "reduce" });
}
