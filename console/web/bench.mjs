// Measures the console in a browser, for cmd/bench: the address of the console is its argument, and
// its output is one line of JSON. The server has many threads, and the flow "plain-steps".
import { chromium } from "playwright-core";

const base = process.argv[2];
const api = new URL("/v1/", base);
const browser = await chromium.launch({
  executablePath: process.env.PERDURE_BROWSER ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc", "--enable-precise-memory-info"],
});

/**
 * Opens a page, and says when it first painted, when ten elements of a role were on the screen, and how
 * long tasks were. The page itself notices the frame: asking for it from here would take part in the time.
 */
async function open(path, role) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  page.setDefaultTimeout(120_000);
  await page.addInitScript((role) => {
    window.longTasks = [];
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask", buffered: true });
    window.shown = new Promise((resolve) => {
      const seen = new MutationObserver(() => {
        if (document.querySelectorAll(`[role="${role}"]`).length <= 10) return;
        seen.disconnect();
        requestAnimationFrame(() => setTimeout(() => resolve(performance.timeOrigin + performance.now()))); // behind the frame
      });
      seen.observe(document, { childList: true, subtree: true });
    });
  }, role);
  const begun = performance.timeOrigin + performance.now();
  await page.goto(new URL(path, base).href, { waitUntil: "commit" });
  const shown = (await page.evaluate(() => window.shown)) - begun;
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
  return { page, shown, paint, longest: await longest(page) };
}

/** The longest task since the last call. */
const longest = (page) => page.evaluate(() => Math.max(0, ...window.longTasks.splice(0)));

const heap = (page) =>
  page.evaluate(async () => {
    for (let n = 0; n < 3; n++) {
      window.gc();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return performance.memory.usedJSHeapSize;
  });

async function start(steps) {
  const response = await fetch(new URL("runs", api), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ flow: "plain-steps", input: { Steps: steps, Size: 100 } }),
  });
  if (!response.ok) throw new Error(`start: ${response.status} ${await response.text()}`);
}

/** Starts runs, which the list shows, and lets it come to rest. */
async function live(page, runs) {
  for (let n = 0; n < runs; n += 20) await Promise.all(Array.from({ length: 20 }, () => start(5)));
  await page.waitForTimeout(2000);
}

await (await open("threads", "row")).page.close(); // the first start of a browser is not the console's
const list = await open("threads", "row");
const scroller = list.page.getByRole("table", { name: "Threads" });
for (let n = 0; n < 40; n++) {
  await scroller.evaluate((box) => box.scrollBy(0, 1500));
  await list.page.waitForTimeout(25);
}
const scrolled = await longest(list.page);
await live(list.page, 400);
const before = await heap(list.page);
await live(list.page, 2000);
const after = await heap(list.page);
await list.page.close();
// One opening takes half as long again as another, so there are several.
const opened = [];
for (let n = 0; n < 7; n++) {
  const thread = await open("threads/long", "treeitem");
  opened.push({ shown: thread.shown, paint: thread.paint, longest: thread.longest, heap: await heap(thread.page) });
  await thread.page.close();
}
const sorted = (what) => opened.map((one) => one[what]).sort((a, b) => a - b);
await browser.close();
console.log(
  JSON.stringify({
    list: { paint: list.paint, shown: list.shown, longest: list.longest, scrolled, before, after },
    thread: { shown: sorted("shown"), paint: sorted("paint"), longest: sorted("longest"), heap: sorted("heap") },
  }),
);
