import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let stage: Stage;
let nasty: string;
let ask: string;
const open = useBrowser();

const markup = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script><b>bold</b> ![i](https://evil.example/i.png)';
const reversed = "invoice_\u202egpj.exe";
const colours = "\u001b[31mred\u001b[0m";

beforeAll(async () => {
  stage = await Stage.dev();
  nasty = await stage.run("echo", `${markup}\n${reversed}\n${colours}\n${"long ".repeat(200_000)}`, { title: `${markup} ${reversed} ${colours}` });
  await until(async () => (await stage.api<{ status: string }>("GET", `/v1/threads/${nasty}`)).status === "succeeded", () => "the echo");
  ask = (await stage.asks(await stage.run("desk", "My order A-17 came broken", { title: "A tea set" })))[0]?.id ?? "";
});
afterAll(() => stage?.end());

/** Says what axe finds that is serious. */
async function serious(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const found = await (window as unknown as { axe: { run(): Promise<{ violations: { id: string; impact: string; nodes: { target: string[]; failureSummary?: string }[] }[] }> } }).axe.run();
    return found.violations
      .filter((v) => v.impact === "serious" || v.impact === "critical")
      .flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id} at ${n.target.join(" ")}: ${n.failureSummary ?? ""}`));
  });
}

const settled = (page: Page) => page.waitForFunction(() => document.querySelector("h1") && !/Reading .* …/.test(document.body.innerText));

const pages: [string, () => string][] = [
  ["threads", () => "/threads"],
  ["thread", () => `/threads/${nasty}`],
  ["travel-hostile", () => `/threads/${nasty}/travel?tab=state`],
  ["inbox", () => "/inbox"],
  ["ask", () => `/asks/${ask}`],
  ["start", () => "/start"],
  ["operations", () => "/operations"],
  ["operations-usage", () => "/operations?tab=usage"],
  ["operations-schedules", () => "/operations?tab=schedules"],
  ["operations-retention", () => "/operations?tab=retention"],
  ["operations-archive-empty", () => "/operations?tab=archive"],
  ["operations-tokens-empty", () => "/operations?tab=tokens"],
  ["login", () => "/login"],
];

for (const [name, path] of pages) {
  test(`${name}: nothing that axe finds serious, light and dark, wide and narrow`, async () => {
    const page = await open();
    await page.goto(`${stage.url}/console${path()}`);
    await settled(page);
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: width === 390 ? 844 : 800 });
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        expect(await serious(page), `${width} ${colorScheme}`).toEqual([]);
      }
      expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), "nothing sticks out").toBeLessThanOrEqual(0);
      await shoot(page, name);
    }
  });
}

test("what a model, a tool or a user wrote is text, whatever it says", async () => {
  const page = await open();
  for (const path of ["/threads", `/threads/${nasty}`, `/threads/${nasty}/travel?at=2&tab=event`, `/threads/${nasty}/travel?at=2&and=5&tab=changes`]) {
    await page.goto(`${stage.url}/console${path}`);
    await settled(page);
    await page.getByText('<img src=x onerror="window.pwned=1">').first().waitFor();
    const seen = await page.evaluate(() => ({
      pwned: "pwned" in window,
      elements: document.querySelectorAll('img[src="x"], img[src^="http"], #root script, #root b').length,
      hidden: /[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.body.innerText),
      length: document.body.innerText.length,
    }));
    expect(seen, path).toMatchObject({ pwned: false, elements: 0, hidden: false });
    expect(seen.length, "a long text is cut until asked for").toBeLessThan(100_000);
  }
});
