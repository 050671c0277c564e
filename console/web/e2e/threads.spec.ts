import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

let stage: Stage;
const open = useBrowser();
beforeAll(async () => {
  stage = await Stage.dev();
});
afterAll(() => stage?.end());

const status = async (thread: string) => (await stage.api<{ status: string }>("GET", `/v1/threads/${thread}/runs/newest`)).status;

test("the list shows what starts and changes at once, and its filter is its address", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/threads`);
  const thread = await stage.run("survey", "the tea", { title: "How was the tea" });
  const row = page.getByRole("row").filter({ hasText: "How was the tea" });
  await row.getByText("asks", { exact: true }).waitFor();
  await stage.run("order", { item: "cup", count: 2 }, { title: "Two cups" });
  await page.getByRole("row").filter({ hasText: "Two cups" }).getByText("succeeded", { exact: true }).waitFor();
  await shoot(page, "threads");
  await page.keyboard.press("/");
  await page.keyboard.type("cups");
  await expect.poll(() => page.url()).toContain("q=cups");
  await expect.poll(() => row.count()).toBe(0);
  await page.reload();
  await page.getByRole("row").filter({ hasText: "Two cups" }).waitFor();
  expect(await row.count()).toBe(0);
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByLabel("Flow").selectOption("order");
  await page.getByRole("button", { name: "succeeded 1", exact: true }).click(); // of this flow
  await page.getByText("Others are counted without a status").waitFor();
  await page.getByRole("button", { name: "Clear" }).click();
  const [ask] = await stage.asks(thread);
  await stage.api("POST", `/v1/asks/${ask?.id}/answer`, { value: { stars: 5 } });
  await row.getByText("succeeded", { exact: true }).waitFor();
});

test("the list shows the steps of a run that goes on, and a signal is sent from its page", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/threads`);
  const thread = await stage.run("parcel", "box", { title: "A parcel" });
  const row = page.getByRole("row").filter({ hasText: "A parcel" });
  await row.getByText("a worker executes it").waitFor();
  const looks = () => page.waitForResponse((response) => /\/v1\/threads\?/.test(response.url()) && new URL(response.url()).searchParams.get("limit") !== "200");
  await looks();
  writeFileSync(join(stage.folder, "box"), "");
  await row.getByText("/pack").waitFor();
  writeFileSync(join(stage.folder, "box-label"), "");
  await row.getByText("it waits for the signal delivered").waitFor();
  await page.goto(`${stage.url}/console/threads/${thread}`);
  await page.getByRole("button", { name: "Send the signal" }).click();
  const dialog = page.getByRole("dialog", { name: "Send the signal delivered" });
  await dialog.getByLabel("Value").fill("at noon");
  expect(await dialog.getByRole("button", { name: "Send", exact: true }).isDisabled()).toBe(true);
  await dialog.getByLabel("Value").fill('{"at": 1, "at": 2}');
  await dialog.getByText('The name "at" occurs twice in an object.').waitFor();
  await dialog.getByLabel("Value").fill('"at noon"');
  await page.keyboard.press("Escape");
  await page.reload(); // what was begun is there again
  await page.getByRole("button", { name: "Send the signal" }).click();
  expect(await dialog.getByLabel("Value").inputValue()).toBe('"at noon"');
  await dialog.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("succeeded", { exact: true }).first().waitFor();
  const { output } = await stage.api<{ output: string }>("GET", `/v1/threads/${thread}/runs/newest`);
  expect(output).toBe("at noon");
  expect(await page.evaluate(() => Object.keys(sessionStorage).filter((key) => /^perdure-draft.* signal /.test(key)))).toEqual([]);
});

test("a lost worker is a mark on the timeline, and the page goes on by itself", async () => {
  const thread = await stage.run("hold", "go", { title: "Holds on" });
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}`);
  await page.getByRole("treeitem").filter({ hasText: "prepare" }).waitFor();
  await stage.kill();
  await page.getByText("No connection to the server").waitFor();
  expect(await page.getByRole("treeitem").filter({ hasText: "prepare" }).count()).toBe(1); // what it knew stays
  await page.getByText("waited for the next attempt").waitFor(); // the legend has every look
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Pause the run" }).click();
  const notice = await page.locator("li[data-state=open]").filter({ hasText: "“Pause” may not have arrived" }).boundingBox();
  const banner = await page.getByText("No connection to the server").boundingBox();
  expect(notice?.y).toBeGreaterThanOrEqual((banner?.y ?? 0) + (banner?.height ?? 0)); // neither covers the other
  await page.getByRole("button", { name: "Leave it" }).click();
  writeFileSync(join(stage.folder, "go"), "");
  await stage.again();
  await page.getByRole("button", { name: /worker lost/ }).waitFor();
  await until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  await page.getByText("succeeded", { exact: true }).first().waitFor();
  await page.getByText("No connection to the server").waitFor({ state: "hidden" });
  await shoot(page, "thread-lost-worker");
  const seen = await page.getByRole("tree", { name: "Steps" }).innerText();
  await page.reload();
  await page.getByRole("button", { name: /worker lost/ }).waitFor();
  await expect.poll(() => page.getByRole("tree", { name: "Steps" }).innerText()).toBe(seen); // as a fresh load shows it
  await page.getByRole("treeitem").filter({ hasText: "prepare" }).getByRole("button", { name: "prepare" }).first().click();
  const inspector = page.getByRole("complementary", { name: "Inspector" });
  await inspector.getByText("ready").waitFor();
  await inspector.getByText("Later passes took its result from the journal.").waitFor();
});

test("a page asks for a thread once", async () => {
  const thread = await stage.run("order", { item: "fork", count: 1 });
  await until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  const page = await open();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${stage.url}/console/threads/${thread}`);
  await page.getByRole("treeitem").filter({ hasText: "place" }).waitFor();
  for (const path of ["/v1/me", `/v1/threads/${thread}`, `/v1/threads/${thread}/state`, `/v1/threads/${thread}/events`]) expect(asked.filter((one) => one === path)).toEqual([path]);
});

test("all events of a long thread are listed", async () => {
  const thread = await stage.run("tally", 2100);
  await until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  const { seq } = await stage.api<{ seq: number }>("GET", `/v1/threads/${thread}`);
  expect(seq).toBeGreaterThan(2100);
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}?tab=events`);
  const list = page.getByRole("list", { name: "All events" });
  await list.getByRole("button", { name: /^1 .*created/ }).waitFor();
  expect(await list.getByRole("listitem").count()).toBeLessThan(100);
  await page.goto(`${stage.url}/console/threads/${thread}?tab=events&seq=${seq}`);
  await list.getByRole("button", { name: new RegExp(`^${seq} `) }).waitFor();
});

test("a run is cancelled with a reason", async () => {
  const thread = await stage.run("hold", "never", { title: "Cancelled" });
  const page = await open({ width: 390, height: 844 });
  await page.goto(`${stage.url}/console/threads/${thread}`);
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: "Cancel" }).click();
  await page.getByLabel("Reason").fill("nobody needs it");
  await page.getByRole("button", { name: "Cancel the run" }).click();
  await page.getByText("cancelled", { exact: true }).first().waitFor();
  const { events } = await stage.api<{ events: { kind: string; reason?: string }[] }>("GET", `/v1/threads/${thread}/events`);
  expect(events.find((e) => e.kind === "cancel")?.reason).toBe("nobody needs it");
});

test("what others wrote is text", async () => {
  const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>\u202eexe.txt\u001b[31m${"A".repeat(1_000_000)}`;
  const thread = await stage.run("order", { item: hostile, count: 1 }, { title: "<b>bold</b>" });
  await until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}?seq=4`);
  const inspector = page.getByRole("complementary", { name: "Inspector" });
  await inspector.getByText("<img src=x onerror=").first().waitFor();
  await inspector.getByText("⟨U+202E⟩exe.txt␛[31m").first().waitFor();
  await inspector.getByRole("button", { name: /Show all/ }).first().waitFor();
  await page.getByRole("heading", { name: "<b>bold</b>" }).waitFor();
  expect(await page.locator("main img, main script").count()).toBe(0);
  expect(await page.title()).toBe("<b>bold</b> – Perdure");
});

test("tokens are those of the run that is shown, and the tab says what the thread is called", async () => {
  const thread = await stage.run("desk", "Hello", { title: "Gift\u202efdp.exe" });
  const over = async () => until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  await over();
  await stage.api("POST", `/v1/threads/${thread}/runs`, { flow: "desk", input: "Hello again" });
  await over();
  const { runs } = await stage.api<{ runs: { id: string; spent: { tokens: number } }[] }>("GET", `/v1/threads/${thread}`);
  expect(new Set(runs.map((run) => run.spent.tokens)).size).toBe(2);
  const page = await open();
  for (const run of runs) {
    await page.goto(`${stage.url}/console/threads/${thread}?run=${run.id}`);
    await page.getByRole("banner").or(page.locator("header")).getByText(`${run.spent.tokens} tokens`, { exact: true }).first().waitFor();
  }
  await expect.poll(() => page.title()).toBe("Gift⟨U+202E⟩fdp.exe – Perdure");
});

test("the inspector is as wide as one likes", async () => {
  const thread = await stage.run("order", { item: "spoon", count: 1 });
  await until(async () => (await status(thread)) === "succeeded", () => "the end of the run");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}?seq=2`);
  const edge = page.getByRole("separator", { name: "Width of the inspector" });
  const width = async () => Number(await edge.getAttribute("aria-valuenow"));
  await edge.waitFor();
  const first = await width();
  for (let n = 0; n < 3; n++) await edge.press("ArrowRight");
  await expect.poll(width).toBe(first - 72);
  await page.reload();
  await expect.poll(width).toBe(first - 72);
  const box = (await edge.boundingBox())!;
  await page.mouse.move(box.x + 4, 400);
  await page.mouse.down();
  await page.mouse.move(800, 400, { steps: 4 });
  await page.mouse.up();
  await expect.poll(width).toBe(480);
});

test("numbers that a double cannot hold keep their digits", async () => {
  const exact = '{"id": "exact", "state": {"n": 9007199254740993}}';
  const made = await fetch(`${stage.url}/v1/threads`, { method: "POST", headers: { "Content-Type": "application/json" }, body: exact });
  expect(made.status).toBe(201);
  const page = await open();
  await page.goto(`${stage.url}/console/threads/exact?tab=state`);
  await page.getByText("9007199254740993").first().waitFor();
});
