import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

let stage: Stage;
const open = useBrowser();
beforeAll(async () => {
  stage = await Stage.dev();
});
afterAll(() => stage?.end());

interface Seen {
  seq: number;
  status: string;
  runs?: { output?: unknown; status: string }[];
}
const seen = (thread: string) => stage.api<Seen>("GET", `/v1/threads/${thread}`);

/** Orders something, and returns the thread once it is there. */
async function order(item: string, thread?: string): Promise<string> {
  const input = { item, count: 2 };
  const to = thread ? (await stage.api<{ thread: string }>("POST", `/v1/threads/${thread}/runs`, { flow: "order", input })).thread : await stage.run("order", input, { title: `An order of ${item}` });
  await until(async () => (await seen(to)).runs?.at(-1)?.status === "succeeded", () => `the order of ${item}`);
  return to;
}

test("a store without threads offers the demo, whose crash has a mark", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/`);
  await page.getByRole("button", { name: "Add the demo thread" }).click();
  await page.waitForURL(/\/threads\/demo/);
  await page.goto(`${stage.url}/console/threads/demo/travel`);
  await page.getByRole("list", { name: "Events" }).getByText(/another worker took over/).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("at")).toBe("20");
  await page.getByRole("list", { name: "Marks" }).getByText("worker lost, another took over").waitFor();
});

test("the slider and keys go through the journal, and an address leads back", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/threads/demo/travel?at=4`);
  const shown = page.getByRole("list", { name: "Events" }).locator('[aria-current="true"]');
  await expect.poll(() => shown.innerText()).toMatch(/^4\b/);
  await page.getByText("How can a cache be kept from serving stale data?").first().waitFor();
  expect(await page.getByText("Three searches, at the same time.").count()).toBe(0);
  for (const key of ["j", "j", "ArrowRight", "k"]) await page.keyboard.press(key);
  await expect.poll(() => shown.innerText()).toMatch(/^6\b/);
  await page.keyboard.press("J"); // the next mark
  await expect.poll(() => new URL(page.url()).searchParams.get("at")).toBe("20");
  await page.getByText("Three searches, at the same time.").waitFor();
  await page.getByRole("slider", { name: "Shown point" }).press("End");
  await expect.poll(() => new URL(page.url()).searchParams.get("at")).toBe("39");
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByText("# Keeping a cache fresh").waitFor();
  await page.reload();
  await page.getByText("# Keeping a cache fresh").waitFor();
  await page.goto(`${stage.url}/console/threads/demo/travel?at=12&tab=files`);
  await page.getByText("There are no files").waitFor();
  await page.goto(`${stage.url}/console/threads/demo/travel?at=24`);
  await page.getByText("Three searches, at the same time.").waitFor();
  await shoot(page, "travel");
});

test("two points are compared: changes, and side by side", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/threads/demo/travel?at=19&and=28&tab=changes`);
  await page.getByRole("figure", { name: "Difference of agent.file:/report.md" }).getByText("# Keeping a cache fresh").waitFor();
  await page.getByRole("tabpanel").getByText("May the researcher publish this report?").waitFor();
  await shoot(page, "travel-changes");
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByRole("region", { name: "Point A" }).getByText("There are no files").waitFor();
  await page.getByRole("region", { name: "Point B" }).getByText("# Keeping a cache fresh").waitFor();
  await shoot(page, "travel-beside");
  await page.getByRole("button", { name: "Stop comparing" }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("and")).toBeNull();
});

test("a fork with another input goes another way, and both are compared", async () => {
  const thread = await order("tea");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}/travel?at=2`);
  await page.getByRole("button", { name: "Fork here" }).click();
  await page.getByRole("button", { name: "Change: Input of the run" }).click();
  const editor = page.getByRole("textbox", { name: "Input of the run" });
  await editor.fill('{"item": "coffee", "count": ');
  await expect.poll(() => page.getByRole("button", { name: "Fork and continue" }).isDisabled()).toBe(true);
  await editor.fill('{"item": "coffee", "count": 7}');
  await page.getByLabel("Id of the fork").fill("coffee");
  await shoot(page, "travel-fork");
  await page.getByRole("button", { name: "Fork and continue" }).click();
  await page.getByRole("list", { name: "What is not undone" }).getByText("/place").waitFor();
  await until(async () => (await seen("coffee")).status === "succeeded", () => "the end of the fork");
  expect((await seen("coffee")).runs?.[0]?.output).toBe("7 × coffee");
  expect((await seen(thread)).runs?.[0]?.output).toBe("2 × tea");
  await page.getByRole("button", { name: "Compare both" }).click();
  await page.getByText("The threads share their first 2 events.").waitFor();
  await page.getByRole("tab", { name: "Branches" }).click();
  const branches = page.getByRole("list", { name: "Branches" });
  await branches.getByText("forked at 2").waitFor();
  await branches.getByText("coffee", { exact: true }).waitFor();
  await page.goto(`${stage.url}/console/threads/coffee/travel?tab=branches`);
  await page.getByRole("button", { name: `Compare with ${thread}` }).click();
  await page.getByText("The threads share their first 2 events.").waitFor();
  await page.getByRole("tab", { name: "Branches" }).click();
  await branches.getByText("forked at 2").waitFor();
  await shoot(page, "travel-branches");
});

test("a fork with another state has it", async () => {
  const thread = await order("milk");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}/travel`);
  await page.getByRole("button", { name: "Fork here" }).click();
  await page.getByRole("button", { name: "Change: State" }).click();
  const editor = page.getByRole("textbox", { name: "State" });
  await editor.fill("[1]");
  await page.getByText("This has to be an object with the keys to set.").waitFor();
  await editor.fill('{"colour": "blue", "order": 9007199254740993}'); // a double would make it ...992
  let lost = 0;
  await page.route(/\/fork$/, async (route) => {
    await route.fetch(); // it is there, and its response is lost
    lost++;
    await route.abort();
  });
  await page.getByRole("button", { name: "Fork", exact: true }).dblclick(); // as a switch that bounces
  await page.getByRole("alert").getByText("The request may not have arrived.").waitFor();
  expect(lost).toBe(1);
  await page.unroute(/\/fork$/);
  await page.getByRole("button", { name: "Fork", exact: true }).dblclick();
  await expect.poll(() => page.url()).not.toContain(`/threads/${thread}/`);
  await page.getByRole("tab", { name: "State" }).click();
  await page.getByText('"blue"').waitFor();
  await page.getByText("9007199254740993").first().waitFor();
  const { members } = await stage.api<{ members: unknown[] }>("GET", `/v1/threads/${thread}/family`);
  expect(members).toHaveLength(2);
});

test("a rewind says what is not undone, and is refused in the middle of a run", async () => {
  const thread = await order("bread");
  const { seq } = await seen(thread);
  await order("butter", thread);
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}/travel?at=${seq + 1}`);
  await page.getByRole("button", { name: "Rewind to here" }).click();
  await page.getByText(/A run was active at this point/).waitFor();
  await page.getByRole("button", { name: `Go to ${seq}, where none was` }).click();
  await page.getByRole("button", { name: "Rewind to here" }).click();
  const list = page.getByRole("list", { name: "What is not undone" });
  await expect.poll(() => list.getByRole("listitem").count()).toBe(1);
  expect(await list.innerText()).toContain("/place");
  await shoot(page, "travel-rewind");
  await page.getByRole("button", { name: "Take it back" }).click();
  await page.getByText(`The thread is as it was at ${seq}`).first().waitFor();
  expect((await seen(thread)).runs).toHaveLength(1);
  await page.getByRole("list", { name: "Events" }).getByText(`taken back to ${seq}`).waitFor();
  const now = (await stage.api<{ seq: number }>("GET", `/v1/threads/${thread}`)).seq;
  await expect.poll(() => new URL(page.url()).searchParams.get("at")).toBe(String(now));
  await expect.poll(() => page.getByRole("list", { name: "Events" }).locator('[aria-current="true"]').innerText()).toMatch(new RegExp(`^${now}\\b`));
});
