import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

let stage: Stage;
const open = useBrowser();
beforeAll(async () => {
  stage = await Stage.dev();
});
afterAll(() => stage?.end());

const story = /^Long ago a clerk .* were still to be read\.$/;
const threadOf = (url: string) => decodeURIComponent(/threads\/([^/?]+)/.exec(url)?.[1] ?? "");
const runsOf = async (thread: string) => (await stage.api<{ runs: { status: string; flow: string }[] }>("GET", `/v1/threads/${thread}`)).runs;

test("a form starts one run, however often it is sent", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/start`);
  await page.getByRole("button", { name: "order" }).click();
  await page.getByRole("button", { name: "JSON" }).click();
  const editor = page.getByRole("textbox", { name: "Input as JSON" });
  await editor.fill('{"item": "tea", "count": 3}');
  await page.getByLabel("Title of the thread").fill("Three teas");
  await shoot(page, "start");
  const before = (await stage.api<{ threads: unknown[] }>("GET", "/v1/threads")).threads.length;
  await page.getByRole("button", { name: "Start", exact: true }).dblclick();
  await page.waitForURL(/\/threads\//);
  const thread = threadOf(page.url());
  await until(async () => (await runsOf(thread))[0]?.status === "succeeded", () => "the end of the order");
  expect((await stage.api<{ output: unknown }>("GET", `/v1/threads/${thread}/runs/newest`)).output).toBe("3 × tea");
  expect((await stage.api<{ threads: unknown[] }>("GET", "/v1/threads")).threads).toHaveLength(before + 1);
});

test("a chat answers asks inline, and a draft outlives a refresh", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/chat/desk`);
  const box = page.getByLabel("Message");
  await box.fill("My order A-17");
  await page.reload();
  expect(await box.inputValue()).toBe("My order A-17");
  await box.fill("My order A-17 came broken");
  await box.press("Enter");
  await page.waitForURL(/\/threads\/.+\/chat/);
  const thread = threadOf(page.url());
  const ask = page.getByRole("region", { name: "Waits for a person" });
  await ask.waitFor();
  await shoot(page, "chat");
  await ask.getByRole("button", { name: "Approve" }).click();
  await page.getByText("It is settled: refunded 42 EUR for A-17. Is there anything else?").waitFor();
  await page.getByText(/approved by local/).waitFor();
  expect(await runsOf(thread)).toHaveLength(1);
});

test("calls that need a credential wait for it, and it is asked for once", async () => {
  const thread = await stage.run("desk", "Please print the labels");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}?tab=conversation`);
  await expect.poll(() => page.getByText("waits for a credential").count()).toBe(2);
  expect(await page.getByText("runs", { exact: true }).count()).toBe(0);
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await expect.poll(() => page.getByText("waits for a credential").count()).toBe(2);
  const ask = page.getByRole("region", { name: "Waits for a person" });
  await ask.getByText("What is the password of the label printer?").waitFor(); // of one
  await shoot(page, "chat-credential");
});

test("a chat survives the death of its server with the exact text", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/chat/desk`);
  await page.getByLabel("Message").fill("Tell me a long story");
  await page.getByLabel("Message").press("Enter");
  await page.waitForURL(/\/threads\/.+\/chat/);
  const thread = threadOf(page.url());
  const said = page.getByRole("list", { name: "Conversation" }).getByRole("listitem");
  await expect.poll(() => said.last().innerText(), { timeout: 30_000 }).toMatch(/^Long ago a clerk/);
  await stage.kill();
  await page.getByText("No connection to the server.").waitFor();
  expect(await said.first().innerText()).toContain("Tell me a long story"); // what was there stays
  await stage.again();
  await expect.poll(async () => (await said.last().innerText()).trim(), { timeout: 60_000 }).toMatch(story);
  const run = await stage.api<{ output: string; resumes: number }>("GET", `/v1/threads/${thread}/runs/newest`);
  const text = async () => (await said.last().innerText()).trim();
  expect(await text()).toBe(run.output);
  await page.reload();
  await expect.poll(text).toBe(run.output);
  expect(await said.count()).toBe(2);
});

test("a message that was not sent is sent by nobody but its author", async () => {
  const thread = await stage.run("desk", "Hello");
  await until(async () => (await runsOf(thread))[0]?.status === "succeeded", () => "the first turn");
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  const box = page.getByLabel("Message");
  const refuse = () => page.route("**/v1/threads/*/runs", (route) => route.abort());
  const allow = () => page.unroute("**/v1/threads/*/runs");
  const fail = async (text: string) => {
    await box.fill(text);
    await box.press("Enter");
    await page.getByText("The message may not have arrived").first().waitFor();
    await page.getByRole("button", { name: "Send", exact: true }).waitFor();
    expect(await box.inputValue()).toBe(text);
  };
  const posts: string[] = [];
  page.on("request", (request) => request.method() === "POST" && posts.push(request.url()));
  await refuse();
  await fail("FIRST");
  await box.fill("SECOND");
  await allow();
  const before = posts.length;
  await page.reload();
  await expect.poll(() => box.inputValue()).toBe("SECOND");
  await box.fill("");
  await page.reload();
  await page.getByText("Hello", { exact: true }).waitFor();
  expect(await box.inputValue()).toBe("");
  await page.context().setOffline(true);
  await fail("THIRD"); // at once, not when the network is back
  await page.context().setOffline(false);
  await page.goto(`${stage.url}/console/threads`);
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await expect.poll(() => box.inputValue()).toBe("THIRD");
  expect(posts.length).toBe(before + 1); // the one that failed offline
  expect(await runsOf(thread)).toHaveLength(1);
  await box.press("Enter");
  await page.getByText("You said: THIRD").waitFor({ timeout: 60_000 });
  await expect.poll(() => box.inputValue()).toBe("");
  expect(await runsOf(thread)).toHaveLength(2);
});

test("a file of the page that does not come takes nothing else away", async () => {
  const page = await open();
  await page.route("**/assets/MarkdownRendered-*.js", (route) => route.abort());
  const thread = await stage.run("desk", "Hello");
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await page.getByLabel("Message").fill("I am writing");
  const lost = page.getByRole("alert").filter({ hasText: "A part of this page could not be loaded." });
  await lost.waitFor();
  await page.getByText(/You said: Hello/).waitFor(); // as text
  await page.getByRole("navigation", { name: "Pages" }).getByText("Threads").waitFor();
  await page.unroute("**/assets/MarkdownRendered-*.js");
  await lost.getByRole("button", { name: "Try again" }).click();
  await lost.waitFor({ state: "detached" });
  await page.getByText(/You said: Hello/).waitFor();
  expect(await page.getByLabel("Message").inputValue()).toBe("I am writing");
});

test("what is typed while the editor still loads is kept, and nobody's keys are lost", async () => {
  const page = await open();
  let come = () => {};
  const coming = new Promise<void>((resolve) => (come = resolve));
  await page.route("**/assets/CodeEditor-*.js", async (route) => {
    await coming;
    await route.continue();
  });
  await page.goto(`${stage.url}/console/start`);
  await page.getByRole("button", { name: "order" }).click();
  await page.getByRole("button", { name: "JSON" }).click();
  const editor = page.getByRole("textbox", { name: "Input as JSON" });
  await editor.fill('{"item": "tea", ');
  const file = page.waitForResponse(/CodeEditor-/);
  come();
  await (await file).finished();
  await page.keyboard.type('"count": 5}');
  expect(await editor.inputValue()).toBe('{"item": "tea", "count": 5}');
  await page.getByLabel("Title of the thread").focus();
  await page.locator(".cm-content").getByText('"count"').waitFor();
  await editor.press("Control+End");
  await page.keyboard.press("Backspace");
  await page.keyboard.type("0}");
  expect((await editor.innerText()).trim()).toBe('{"item": "tea", "count": 50}');
});

test("a flow that is no agent offers no chat", async () => {
  const thread = await stage.run("order", { item: "tea", count: 1 });
  const page = await open();
  await page.goto(`${stage.url}/console/threads/${thread}`);
  await page.getByRole("link", { name: "time travel" }).waitFor();
  expect(await page.getByRole("link", { name: "chat", exact: true }).count()).toBe(0);
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await page.getByText("order is no agent, and takes no messages.").waitFor();
  expect(await page.getByLabel("Message").count()).toBe(0);
  await page.goto(`${stage.url}/console/start`);
  await page.getByRole("link", { name: "Chat" }).waitFor(); // of the only agent
});

test("a message steers a turn that runs, and a turn is stopped", async () => {
  const page = await open();
  const thread = await stage.run("desk", "Tell me a long story");
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await page.getByLabel("Message").fill("And then?");
  await page.getByRole("button", { name: "Steer" }).click();
  await page.getByText("not read yet").waitFor();
  await page.getByText("You said: And then?").waitFor({ timeout: 60_000 });
  expect(await page.getByText("not read yet").count()).toBe(0);
  await page.getByLabel("Message").fill("Tell me a long story");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByRole("button", { name: "Stop" }).click();
  await until(async () => (await runsOf(thread)).at(-1)?.status === "cancelled", () => "the cancelled run");
  await page.getByRole("button", { name: "Send" }).waitFor();
});
