import { afterAll, beforeAll, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { shoot, Stage, useBrowser } from "./stage";

let stage: Stage;
let admin = "";
const open = useBrowser();
beforeAll(async () => {
  stage = await Stage.serve();
  admin = stage.token("boss", "--scopes", "admin");
});
afterAll(() => stage?.end());

test("a link to an ask works on a phone after login", async () => {
  const thread = await stage.run("desk", "My order A-17 came broken", { title: "A broken tea set" }, admin);
  const [ask] = await stage.asks(thread, 1, admin);
  const page = await open({ width: 390, height: 844 });
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByLabel("Token").fill("no such token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The server does not know this token.").waitFor();
  await page.getByLabel("Token").fill(stage.token("ann", "--scopes", "read,answer"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Pays money back to a customer.").first().waitFor();
  expect(new URL(page.url()).pathname).toBe(`/console/asks/${ask?.id}`);
  await shoot(page, "ask");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("heading", { name: "Approved by ann" }).waitFor();
});

test("who may only read sees no buttons, and the server refuses", async () => {
  const thread = await stage.run("desk", "My order A-17 came broken", {}, admin);
  const [ask] = await stage.asks(thread, 1, admin);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByLabel("Token").fill(stage.token("eve", "--scopes", "read"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Your token may look, but not answer.").waitFor();
  for (const name of ["Approve", "Edit", "Reject"]) expect(await page.getByRole("button", { name }).count()).toBe(0);
  await page.keyboard.press("a");
  await page.goto(`${stage.url}/console/start?flow=desk`);
  await page.getByText("Your token may look, but not start anything.").waitFor();
  expect(await page.getByRole("button", { name: "Start", exact: true }).count()).toBe(0);
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await page.getByText("My order A-17 came broken").waitFor();
  expect(await page.getByLabel("Message").count()).toBe(0);
  const refused = await page.evaluate(async (id) => {
    const headers = { "Content-Type": "application/json", "Perdure-Console": "1" };
    const answer = await fetch(`/v1/asks/${id}/answer`, { method: "POST", headers, body: '{"decision":"approve"}' });
    const start = await fetch("/v1/runs", { method: "POST", headers, body: '{"flow":"order"}' });
    return [answer.status, start.status];
  }, ask?.id);
  expect(refused).toEqual([403, 403]);
  expect(await stage.asks(thread, 1, admin)).toHaveLength(1);
});

async function signIn(page: Page, token: string) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

async function signOut(page: Page, account: string) {
  await page.getByRole("button", { name: account }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to Perdure" }).waitFor();
}

test("what someone began to write is neither shown to the next one nor sent by them", async () => {
  const thread = await stage.run("desk", "My order A-17 came broken", {}, admin);
  const [ask] = await stage.asks(thread, 1, admin);
  const page = await open();
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await signIn(page, admin);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("amount").fill("41");
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await page.route("**/v1/threads/*/runs", (route) => route.abort());
  await page.getByLabel("Message").fill("a secret of the boss");
  await page.getByLabel("Message").press("Enter");
  await page.getByText("The message may not have arrived").first().waitFor();
  await page.unroute("**/v1/threads/*/runs");
  const drafts = () => page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.startsWith("perdure-draft")).length);
  expect(await drafts()).toBe(2);
  const kim = stage.token("kim", "--scopes", "read,run,answer");
  await page.context().clearCookies(); // the session ends without a word
  await page.goto(`${stage.url}/console/threads/${thread}/chat`);
  await signIn(page, kim);
  await page.getByLabel("Message").waitFor();
  expect(await page.getByLabel("Message").inputValue()).toBe("");
  expect(await drafts()).toBe(0);
  await page.getByLabel("Message").fill("a secret of kim");
  const tab = await page.context().newPage();
  await tab.goto(`${stage.url}/console/threads/${thread}`);
  await tab.getByRole("heading", { level: 1 }).waitFor();
  await signOut(page, "kim");
  expect(await drafts()).toBe(0);
  await tab.getByRole("heading", { name: "Sign in to Perdure" }).waitFor({ timeout: 5_000 });
  await tab.close();
  await signIn(page, admin);
  await page.goto(`${stage.url}/console/asks/${ask?.id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  await expect.poll(() => page.getByLabel("amount").inputValue()).toBe("42");
  const { runs } = await stage.api<{ runs: unknown[] }>("GET", `/v1/threads/${thread}`, undefined, admin);
  expect(runs).toHaveLength(1);
});

test("a token that may not read is told so, and opens nothing", async () => {
  const page = await open();
  await page.goto(`${stage.url}/console/threads`);
  await page.getByLabel("Token").fill(stage.token("robot", "--scopes", "run"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(/This token may run, but not read/).waitFor();
  expect(await page.context().cookies()).toEqual([]);
});
