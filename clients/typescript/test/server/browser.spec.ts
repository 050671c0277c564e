// The example in a browser, against real servers that are killed.
import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { Perdure } from "@perdure/client";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { build } from "vite";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Stage, until } from "../../../../console/web/e2e/server.js";

const example = fileURLToPath(new URL("../../example", import.meta.url));
let stage: Stage;
let chat: ChildProcess;
let chatUrl: string;
let browser: Browser;
let contexts: BrowserContext[] = [];
let admin: Perdure;
const faults: string[] = [];

/** A port that is free now. */
const freePort = () =>
  new Promise<number>((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });

beforeAll(async () => {
  await build({ configFile: `${example}/vite.config.ts`, logLevel: "warn" });
  const port = await freePort();
  chatUrl = `http://127.0.0.1:${port}`;
  stage = await Stage.serve("--origin", chatUrl);
  const token = stage.token("backend", "--scopes", "admin");
  admin = new Perdure({ url: stage.url, token });
  chat = spawn(process.execPath, [`${example}/server.mjs`], { env: { ...process.env, PORT: String(port), PERDURE_URL: stage.url, PERDURE_TOKEN: token }, stdio: "inherit" });
  await until(() => fetch(chatUrl).then((r) => r.ok, () => false), () => "the back end of the example answers");
  browser = await chromium.launch({
    executablePath: process.env.PERDURE_BROWSER,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
  });
});

afterEach(async () => {
  for (const context of contexts) await context.close();
  contexts = [];
  expect(faults.splice(0)).toEqual([]);
});

afterAll(async () => {
  await browser?.close();
  chat?.kill();
  await stage?.end();
});

/** The page, as a user who has just logged in sees it. */
async function login(name: string, hash = ""): Promise<Page> {
  const context = await browser.newContext();
  contexts.push(context);
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => faults.push(String(error)));
  await page.goto(chatUrl + hash);
  await page.getByLabel("name").fill(name);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByLabel("conversation").waitFor({ state: "attached" });
  return page;
}

async function say(page: Page, text: string) {
  await page.getByLabel("message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

const lines = (page: Page) => page.getByLabel("conversation").getByRole("listitem").allTextContents();
const hashOf = (page: Page) => new URL(page.url()).hash;

/** Waits until a page shows a text. */
const shows = (page: Page, text: string) => page.getByText(text).first().waitFor();

test("an approval outlives a refresh, and only its user sees the thread", async () => {
  const page = await login("ann");
  await say(page, "Please refund A-17");
  await page.getByLabel("approval").waitFor();
  const before = await lines(page);
  await page.reload();
  await page.getByLabel("approval").waitFor();
  expect(await lines(page)).toEqual(before);
  const stranger = await login("bob", hashOf(page));
  await stranger.getByRole("button", { name: "Send" }).waitFor();
  expect(await lines(stranger)).toEqual([]);
  expect(await stranger.getByLabel("approval").count()).toBe(0);
  await page.getByRole("button", { name: "Approve" }).click();
  await shows(page, "It is settled: refunded 42 EUR for A-17.");
  expect(await page.getByLabel("approval").count()).toBe(0);
  expect((await admin.thread(hashOf(page).slice(1))).user).toBe("ann");
});

test("a reply ends as recorded though the server is killed and the page is loaded again", async () => {
  const page = await login("ann");
  const other = await login("ann", hashOf(page));
  await say(page, "Tell me a long story.");
  await page.locator("li.live").waitFor();
  await other.reload(); // a page that finds no thread does not wait for one
  for (const one of [page, other]) await one.locator("li.live", { hasText: "kept the books" }).waitFor();
  await stage.kill();
  for (const one of [page, other]) await one.getByRole("status").waitFor();
  const again = other.reload();
  await stage.again();
  await again;
  for (const one of [page, other]) {
    await one.locator("li.assistant:not(.live)", { hasText: "Nobody ever lost a promise in that shop." }).waitFor();
    await until(async () => (await one.getByRole("status").count()) === 0, () => "the connection is back");
  }
  const { messages } = await admin.messages(hashOf(page).slice(1));
  const said = messages.flatMap(({ message }) => message.parts?.flatMap((part) => part.text ?? []) ?? []);
  expect(said).toHaveLength(2);
  expect(await lines(page)).toEqual(said);
  expect(await lines(other)).toEqual(said);
});

test("a message that is sent while the server is away arrives once", async () => {
  const page = await login("ann");
  await say(page, "one");
  await shows(page, "You said: one");
  await stage.kill();
  await page.getByRole("status").waitFor();
  await say(page, "two");
  await shows(page, "two");
  await stage.again();
  await shows(page, "You said: two");
  expect(await lines(page)).toEqual(["one", "You said: one", "two", "You said: two"]);
});

test("a token that is revoked is replaced, and a new chat is another thread", async () => {
  const page = await login("ann");
  await say(page, "one");
  await shows(page, "You said: one");
  const { tokens } = await admin.request("GET /v1/tokens");
  for (const token of tokens) if (token.user === "ann") await admin.request("DELETE /v1/tokens/{token}", { path: { token: token.id } });
  await say(page, "two");
  await shows(page, "You said: two");
  const first = hashOf(page);
  await page.getByRole("button", { name: "New chat" }).click();
  await until(async () => (await lines(page)).length === 0, () => "an empty chat");
  expect(hashOf(page)).not.toBe(first);
  await page.goto(chatUrl + first);
  await page.reload();
  await shows(page, "You said: two");
});
