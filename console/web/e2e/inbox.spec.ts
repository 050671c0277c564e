import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

let stage: Stage;
const open = useBrowser();
beforeAll(async () => {
  stage = await Stage.dev();
});
afterAll(() => stage?.end());

const broken = "My order A-17 came broken";
const output = (thread: string) => stage.api<{ status: string; output: unknown }>("GET", `/v1/threads/${thread}/runs/newest`);
const ended = (thread: string) => until(async () => (await output(thread)).status === "succeeded", () => `the end of ${thread}`);

/** Waits until what is asked has been in sight for long enough to be decided. */
const seen = (page: Page) => expect.poll(() => page.getByRole("group", { name: "Decide" }).getByRole("button", { name: "Approve" }).isEnabled()).toBe(true);

test("an edit by the form is checked, shown as a difference, and runs", async () => {
  const thread = await stage.run("desk", broken, { title: "A tea set" });
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/inbox?ask=${ask?.id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  const amount = page.getByLabel("amount");
  await amount.fill("501");
  await page.getByText("must be at most 500").waitFor();
  await page.getByRole("button", { name: "Approve with this change" }).click();
  await page.getByText("One entry does not fit: /amount must be at most 500.").waitFor();
  await amount.fill("40");
  await page.getByLabel("account").fill("9007199254740993"); // a double would make it ...992
  const change = page.getByRole("figure", { name: "What you change" });
  await expect.poll(() => change.innerText()).toMatch(/"amount": 42[\s\S]*"amount": 40/);
  await shoot(page, "inbox-edit");
  await page.reload(); // a draft is not lost
  await expect.poll(() => page.getByLabel("amount").inputValue()).toBe("40");
  await page.getByRole("group", { name: "Decide" }).getByRole("button", { name: "Approve" }).click(); // it would drop the change
  await page.getByText("You have begun another answer").first().waitFor();
  await page.getByRole("button", { name: "Approve with this change" }).click();
  await page.getByText("Edited and approved", { exact: true }).first().waitFor();
  await ended(thread);
  expect((await output(thread)).output).toContain("refunded 40 EUR for A-17 to account 9007199254740993");
});

test("an edit as JSON goes through the same check", async () => {
  const thread = await stage.run("desk", broken);
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("button", { name: "JSON" }).click();
  const editor = page.locator(".cm-content"); // not what stands in for it until it is loaded
  await editor.fill('{"order": "A-17", "amount": 0}');
  await page.getByText("must be at least 1").waitFor();
  await editor.fill('{"order": "A-17", "amount": 41');
  await page.getByText("This is not JSON yet.").waitFor();
  await editor.fill('{"order": "A-17", "amount": 400, "\\u0061mount": 41}'); // one of them would be lost
  await page.getByText('The name "amount" occurs twice in an object.').first().waitFor();
  expect(await page.getByRole("button", { name: "Approve with this change" }).isDisabled()).toBe(true);
  await editor.fill('{"order": "A-17", "amount": 41}');
  await page.getByText('"amount": 41').last().waitFor();
  await editor.press("Control+Enter");
  await page.getByRole("status").getByText(/Edited and approved by/).waitFor();
  await ended(thread);
  expect((await output(thread)).output).toContain("refunded 41 EUR for A-17");
});

test("decisions are called what a flow calls them, whatever that is", async () => {
  await stage.run("desk", broken);
  const page = await open();
  await page.route(/\/v1\/asks(\/|\?|$)/, async (route) => {
    const response = await route.fetch();
    type Ask = { decisions?: string[]; schemas?: unknown };
    const said = (await response.json()) as Ask & { asks?: Ask[] };
    for (const ask of said.asks ?? [said]) Object.assign(ask, { decisions: ["approve", "__proto__", "constructor", "toString", "ship it"], schemas: undefined });
    await route.fulfill({ response, json: said });
  });
  for (const place of ["inbox", `asks/${(await stage.asks(await stage.run("desk", broken)))[0]?.id}`]) {
    await page.goto(`${stage.url}/console/${place}`);
    const buttons = page.getByRole("group", { name: "Decide" }).getByRole("button");
    await buttons.last().waitFor();
    expect((await buttons.allInnerTexts()).map((text) => text.split("\n")[0])).toEqual(["Approve", "__proto__", "constructor", "toString", "ship it"]);
  }
});

test("an answer without a response may have arrived, and the page says what became of it", async () => {
  const thread = await stage.run("desk", broken);
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("button", { name: "Reject" }).click();
  await page.getByLabel("Why").fill("not ours");
  let away = true;
  await page.route(/\/v1\/asks\//, async (route) => {
    if (!away) return route.continue();
    if (route.request().method() === "POST") await route.fetch(); // it is recorded, and its response is lost
    await route.abort();
  });
  await page.getByLabel("Why").press("Control+Enter");
  await page.getByText("The answer may not have arrived").first().waitFor();
  await page.getByText(/has not confirmed what you decided about refund/).first().waitFor();
  away = false;
  await page.getByText("refund", { exact: true }).first().waitFor();
  await page.getByRole("heading", { name: /^Rejected by/ }).waitFor();
  await expect.poll(() => page.getByText("It was not sent").count()).toBe(0);
  await page.unroute(/\/v1\/asks\//);

  const again = await stage.run("desk", broken);
  const [other] = await stage.asks(again);
  await page.goto(`${stage.url}/console/asks/${other?.id}`);
  await seen(page);
  await page.route(/\/answer$/, (route) => route.abort()); // it does not arrive
  await page.getByRole("group", { name: "Decide" }).getByRole("button", { name: "Approve" }).click();
  await page.getByText("It still waits for an answer").first().waitFor();
  await page.getByRole("link", { name: "Start" }).click();
  await expect.poll(() => page.getByText("may not have arrived").count()).toBe(0); // it belongs to the page before
  await page.goto(`${stage.url}/console/start?flow=nosuch`);
  await page.getByText("There is no flow nosuch").waitFor();
});

test("two browsers answer the same ask: the first counts, and the second is told whose it was", async () => {
  const thread = await stage.run("desk", broken, { title: "Answered twice" });
  const [ask] = await stage.asks(thread);
  const first = await open();
  const second = await open();
  const third = await open();
  await second.route("**/v1/events", (route) => route.abort()); // it hears of nothing
  for (const page of [first, second, third]) {
    await page.goto(`${stage.url}/console/inbox?ask=${ask?.id}`);
    await page.getByRole("button", { name: "Approve" }).waitFor();
  }
  await second.getByRole("button", { name: "Reject" }).click();
  await second.getByLabel("Why").fill("too much");
  await first.getByRole("button", { name: "Approve" }).click();
  await first.getByText("Approved", { exact: true }).first().waitFor();
  await third.getByRole("status").getByText(/Approved by local/).waitFor(); // without a reload
  await second.getByRole("button", { name: "Reject" }).first().click();
  await second.getByText("Your answer was not taken").first().waitFor();
  await second.getByText(/Approved by local, before your answer arrived/).first().waitFor();
  await ended(thread);
});

test("a call that someone else rejects is never shown as running", async () => {
  const thread = await stage.run("desk", broken);
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("heading", { name: "Waits for a person" }).waitFor();
  await page.getByText("waits for a person", { exact: true }).waitFor();
  await stage.api("POST", `/v1/asks/${ask?.id}/answer`, { decision: "reject", message: "no" });
  await page.getByRole("heading", { name: "Rejected by local" }).waitFor();
  await page.getByText("rejected by local", { exact: true }).waitFor();
  expect(await page.getByText("runs", { exact: true }).count()).toBe(0);
  expect(await page.title()).toBe("Rejected by local – Perdure");
  await page.goto(`${stage.url}/console/asks/none`);
  await page.getByRole("heading", { name: "There is nothing to answer here" }).waitFor();
});

test("nobody approves what they have not seen", async () => {
  const disguised = `2.0", "paid_by": "bob ${"x".repeat(25_000)}`;
  const thread = await stage.run("release", disguised);
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByText("1 value is folded.").waitFor();
  await page.getByText('version: "2.0\\", \\"paid_by\\": \\"bob xxx').waitFor();
  await seen(page);
  await page.keyboard.press("a");
  await page.getByText("1 value was folded").first().waitFor();
  expect(await page.getByText("1 value is folded.").count()).toBe(0);
  expect((await page.getByRole("article").innerText()).length).toBeGreaterThan(50_000);
  await stage.asks(thread); // it is still open
  await page.keyboard.press("a");
  await page.getByRole("heading", { name: "Approved by local" }).waitFor();
});

test("the keyboard alone is enough", async () => {
  const names = ["first", "second", "third"];
  const threads: string[] = [];
  for (const name of names) {
    const thread = await stage.run("release", name);
    threads.push(thread);
    await stage.asks(thread);
  }
  const page = await open();
  await page.goto(`${stage.url}/console/threads`);
  await page.getByRole("heading", { name: "Threads" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("i");
  const row = (name: string) => page.getByRole("listitem").filter({ hasText: `Release ${name} to everyone?` }).last();
  await row("first").waitFor();
  const current = () => page.locator("li[aria-current]").innerText();
  for (let i = 0; i < 20 && !(await current()).includes("first"); i++) await page.keyboard.press("j");
  expect(await current()).toContain("first");
  await seen(page);
  await page.keyboard.down("a");
  for (let i = 0; i < 5; i++) await page.keyboard.down("a"); // a key that is held decides once
  await page.keyboard.up("a");
  await row("first").waitFor({ state: "detached" });
  await expect.poll(current).toContain("second");
  await seen(page);
  await page.keyboard.press("r");
  await page.keyboard.type("not today");
  await page.keyboard.press("Control+Enter");
  await row("second").waitFor({ state: "detached" });
  await expect.poll(current).toContain("third");
  await page.keyboard.press("x");
  await page.getByText("1 ask selected").waitFor();
  await page.keyboard.press("a");
  await row("third").waitFor({ state: "detached" });
  for (const [at, decision] of ["approve", "reject", "approve"].entries()) {
    await ended(threads[at]!);
    expect((await output(threads[at]!)).output).toBe(decision);
  }
});

test("asks of one thread are answered at once", async () => {
  const thread = await stage.run("desk", "Please refund all of B-1, B-2 and B-3", { title: "Three at once" });
  await stage.asks(thread, 3);
  const page = await open();
  await page.goto(`${stage.url}/console/inbox`);
  await page.getByLabel(/Three at once/).check();
  await page.getByText("3 asks selected").waitFor();
  await shoot(page, "inbox");
  await page.getByRole("button", { name: "Reject all" }).click();
  await page.getByLabel("Why").fill("Not without a photograph.");
  await page.getByRole("button", { name: "Reject 3 asks" }).click();
  await ended(thread);
  const { messages } = await stage.api<{ messages: { decision?: string; message: unknown }[] }>("GET", `/v1/threads/${thread}/messages`);
  const rejected = messages.filter((one) => one.decision === "reject" && JSON.stringify(one.message).includes("Not without a photograph."));
  expect(rejected).toHaveLength(3);
});

test("a rule is made where the tool permits it, and a response stands in for the call", async () => {
  const thread = await stage.run("desk", broken);
  const [ask] = await stage.asks(thread);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("button", { name: "Always allow" }).click();
  await page.getByText(/with exactly these arguments, without asking/).waitFor();
  await page.getByRole("button", { name: "Approve, and allow from now on" }).click();
  await page.getByRole("heading", { name: "Approved by local, and allowed from now on" }).waitFor();
  await ended(thread);
  const again = await stage.run("desk", broken);
  await ended(again);
  await page.goto(`${stage.url}/console/operations?tab=rules`);
  await page.getByRole("button", { name: "Revoke the rule for refund" }).click();
  await page.getByText("There are no rules").waitFor();
  await stage.asks(await stage.run("desk", broken)); // it is asked about again
  const other = await stage.run("desk", "write to Ada");
  const [mail] = await stage.asks(other);
  await page.goto(`${stage.url}/console/asks/${mail?.id}`);
  expect(await page.getByRole("button", { name: "Always allow" }).count()).toBe(0);
  await page.getByRole("button", { name: "Respond" }).click();
  await page.getByLabel("Answer").fill("She is on holiday.");
  await page.getByRole("button", { name: "Answer in place of the call" }).click();
  await ended(other);
  expect(JSON.stringify(await stage.api("GET", `/v1/threads/${other}/messages`))).toContain("She is on holiday.");
});

test("a question with a schema is a form", async () => {
  const thread = await stage.run("survey", "the tea");
  const [ask] = await stage.asks(thread);
  const page = await open({ width: 390, height: 844 });
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("button", { name: "Send the answer" }).click();
  await page.getByText("is needed", { exact: true }).waitFor();
  await page.getByLabel("stars").fill("5");
  await page.getByLabel("words").fill("hot");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await ended(thread);
  expect((await output(thread)).output).toEqual({ stars: 5, words: "hot" });
});
