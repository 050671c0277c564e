import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shoot, Stage, until, useBrowser } from "./stage";

let stage: Stage;
let admin: string;
const open = useBrowser();
const archive = mkdtempSync(join(tmpdir(), "perdure-archive-"));
beforeAll(async () => {
  stage = await Stage.serve("--archive", `file:${archive}`);
  admin = stage.token("root", "--scopes", "admin");
});
afterAll(async () => {
  await stage?.end();
  rmSync(archive, { recursive: true, force: true });
});

async function signIn(page: Page, path: string, token: string) {
  await page.goto(stage.url + path);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((url) => !url.pathname.includes("/login"));
}

const me = (token: string) => fetch(`${stage.url}/v1/me`, { headers: { Authorization: `Bearer ${token}` } });
const status = async (thread: string) => (await stage.api<{ status: string }>("GET", `/v1/threads/${thread}`, undefined, admin)).status;

test("a token is created, shown once, works, and is revoked", async () => {
  const page = await open();
  await signIn(page, "/console/operations?tab=tokens", admin);
  await page.getByRole("button", { name: "Create a token" }).click();
  await page.getByLabel("Acts as").fill("ann");
  await page.getByRole("checkbox", { name: /^answer/ }).uncheck();
  await page.getByLabel("What for").fill("the shop");
  await page.getByRole("button", { name: "Create", exact: true }).dblclick(); // as a switch that bounces
  const secret = (await page.getByTestId("secret").innerText()).trim();
  const known = await me(secret);
  expect(known.status).toBe(200);
  expect(await known.json()).toMatchObject({ subject: "ann", scopes: ["read", "run"] });
  await page.getByRole("button", { name: "I have copied it" }).click();
  const { tokens } = await stage.api<{ tokens: { id: string; subject: string }[] }>("GET", "/v1/tokens", undefined, admin);
  const anns = tokens.filter(({ subject }) => subject === "ann");
  expect(anns).toHaveLength(1);
  await page.getByRole("row", { name: new RegExp(`${anns[0]?.id}.*ann.*the shop`) }).waitFor(); // perdure token names it by its id
  expect(await page.content()).not.toContain(secret);
  await shoot(page, "operations-tokens");
  await page.getByRole("button", { name: "Revoke the token of ann" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("row", { name: /ann.*revoked/ }).waitFor();
  await expect.poll(async () => (await me(secret)).status).toBe(401);
});

test("a session that has ended leads to the login, and from there back", async () => {
  const leaving = stage.token("leaving", "--scopes", "read");
  const page = await open();
  await signIn(page, "/console/operations?tab=workers", leaving);
  await page.getByRole("row", { name: /echo/ }).waitFor();
  await shoot(page, "operations-workers");
  const { tokens } = await stage.api<{ tokens: { id: string; subject: string }[] }>("GET", "/v1/tokens", undefined, admin);
  const id = tokens.find((token) => token.subject === "leaving")?.id;
  const revoked = await fetch(`${stage.url}/v1/tokens/${id}`, { method: "DELETE", headers: { Authorization: `Bearer ${admin}` } });
  expect(revoked.status).toBe(204);
  await expect.poll(async () => (await me(leaving)).status).toBe(401);
  await page.waitForURL(/\/login/); // what the page reads again is refused
  await page.reload();
  expect(new URL(page.url()).searchParams.get("to")).toMatch(/^\/operations/);
  await page.getByText("Your session has ended").waitFor();
  await page.getByLabel("Token").fill(admin);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(/\/operations\?tab=workers/);
  await page.getByRole("tab", { name: "Tokens" }).waitFor();
});

test("a token that may only read sees neither tokens nor buttons that change", async () => {
  writeFileSync(join(stage.folder, "broken"), "");
  const thread = await stage.run("failing", "soap", { title: "Soap" }, admin);
  await until(async () => (await status(thread)) === "failed", () => "the failure");
  const page = await open();
  await signIn(page, "/console/operations", stage.token("guest", "--scopes", "read"));
  await page.getByRole("button", { name: `Post-mortem of ${thread}` }).waitFor();
  expect(await page.getByRole("button", { name: /^Retry/ }).count()).toBe(0);
  expect(await page.getByRole("tab", { name: "Tokens" }).count()).toBe(0);
  await page.getByRole("tab", { name: "Bulk jobs" }).click();
  await page.getByText("There are no bulk jobs").waitFor();
  expect(await page.getByRole("button", { name: "Begin a job" }).count()).toBe(0);
});

test("a failed run has a post-mortem, and a bulk job retries it", async () => {
  const page = await open();
  await signIn(page, "/console/operations", admin);
  await page.getByRole("button", { name: /^Post-mortem of/ }).first().click();
  await page.getByRole("dialog").getByText("the supplier is closed").first().waitFor();
  await shoot(page, "operations-postmortem");
  await page.getByRole("button", { name: "Close" }).last().click();
  rmSync(join(stage.folder, "broken"));
  await page.getByRole("tab", { name: "Bulk jobs" }).click();
  await page.getByRole("button", { name: "Begin a job" }).click();
  await page.getByRole("button", { name: "Look what it finds" }).click();
  await page.getByRole("button", { name: "retry 1 thread" }).click();
  await page.getByRole("row", { name: /retry.*status failed.*1 done/ }).waitFor();
  await shoot(page, "operations-bulk");
  await page.getByRole("tab", { name: "Trouble" }).click();
  await page.getByText("Nothing is stuck").waitFor();
});

test("a chain is verified", async () => {
  const thread = await stage.run("echo", "hello", {}, admin);
  await until(async () => (await status(thread)) === "succeeded", () => "the echo");
  const page = await open();
  await signIn(page, "/console/operations?tab=archive", admin);
  await page.getByLabel("Id of the thread").fill(thread);
  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText(/The chain of \d+ entries is intact/).waitFor();
  await shoot(page, "operations-archive");
});

test("a schedule is created, changed without losing what the form does not show, and deleted", async () => {
  type Schedule = Record<"every" | "flow" | "input" | "overlap" | "metadata" | "title", unknown>;
  const schedule = (id: string) => stage.api<Schedule>("GET", `/v1/schedules/${id}`, undefined, admin);
  await stage.api("PUT", "/v1/schedules/weekly", { flow: "echo", input: "hello", every: "7d", metadata: { team: "ops" } }, admin);
  const page = await open();
  await signIn(page, "/console/operations?tab=schedules", admin);
  await page.getByRole("button", { name: "Change weekly" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Every").fill("often");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByRole("alert").waitFor(); // the server refuses it, in words
  await dialog.getByLabel("Every").fill("14d");
  await dialog.getByLabel("If the last run has not ended").selectOption("queue");
  await shoot(page, "operations-schedule");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /weekly.*every 14d/ }).waitFor();
  expect(await schedule("weekly")).toMatchObject({ flow: "echo", input: "hello", every: "14d", overlap: "queue", metadata: { team: "ops" } });

  await page.getByRole("button", { name: "Create a schedule" }).click();
  await dialog.getByLabel("Name").fill("orders");
  await dialog.getByLabel("Flow").selectOption("order");
  await dialog.getByLabel("Cron").fill("0 9 * * MON-FRI");
  await dialog.getByLabel("item").fill("tea");
  await page.keyboard.press("Escape");
  await page.reload(); // what was begun is there again
  await page.getByRole("button", { name: "Create a schedule" }).click();
  const begun = ["Name", "Flow", "Cron", "item"].map((name) => dialog.getByLabel(name).inputValue());
  expect(await Promise.all(begun)).toEqual(["orders", "order", "0 9 * * MON-FRI", "tea"]);
  await dialog.getByLabel("count").fill("1.5");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await dialog.getByText("must be a whole number").waitFor();
  await dialog.getByLabel("count").fill("3");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("row", { name: /orders.*0 9 \* \* MON-FRI UTC/ }).waitFor();
  expect(await schedule("orders")).toMatchObject({ flow: "order", input: { item: "tea", count: 3 } });
  await shoot(page, "operations-schedules");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.reload(); // the tab is in sight also where there is little room
  await page.getByRole("button", { name: "Create a schedule" }).waitFor();
  const tab = await page.getByRole("tab", { name: "Schedules" }).boundingBox();
  expect((tab?.x ?? 0) + (tab?.width ?? 0)).toBeLessThanOrEqual(390);
  await page.setViewportSize({ width: 1280, height: 800 });

  // Nothing is replaced that the person has not seen.
  await page.getByRole("button", { name: "Create a schedule" }).click();
  await dialog.getByLabel("Name").fill("weekly");
  await dialog.getByLabel("Flow").selectOption("order");
  await dialog.getByLabel("Cron").fill("0 9 * * *");
  await dialog.getByLabel("item").fill("tea");
  await dialog.getByLabel("count").fill("3");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await dialog.getByText("There is a schedule weekly already.").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Change weekly" }).click();
  await dialog.getByLabel("Every").fill("28d");
  await stage.api("PUT", "/v1/schedules/weekly", { flow: "echo", input: "hello", every: "21d" }, admin);
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText("weekly was changed meanwhile.").waitFor();
  expect(await schedule("weekly")).toMatchObject({ flow: "echo", every: "21d" });
  await dialog.getByRole("button", { name: "Cancel" }).click();

  await page.getByRole("button", { name: "Delete weekly" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect.poll(() => page.getByRole("row", { name: /weekly/ }).count()).toBe(0);
});

test("an archived thread says so, and is restored from its page", async () => {
  const thread = await stage.run("echo", "hello", { title: "Old news" }, admin);
  await until(async () => (await status(thread)) === "succeeded", () => "the echo");
  await stage.api("POST", `/v1/threads/${thread}/archive`, {}, admin);
  const page = await open();
  await signIn(page, `/console/threads/${thread}`, admin);
  await page.getByRole("heading", { name: "This thread is in the archive" }).waitFor();
  await shoot(page, "thread-archived");
  await page.getByRole("button", { name: "Restore it" }).click();
  await page.getByRole("heading", { name: "Old news" }).waitFor();
  await expect.poll(() => page.getByRole("treeitem").count()).toBeGreaterThan(0);
  expect(await page.getByRole("alert").count()).toBe(0);
});

test("a run that kills its workers is quarantined, and goes on after a retry", async () => {
  const deadly = join(stage.folder, "deadly");
  writeFileSync(deadly, "");
  const thread = "poison";
  // The run may kill the server before the response to its start is sent.
  await stage.api("POST", `/v1/threads/${thread}/runs`, { flow: "deadly", input: "x", title: "Poison" }, admin).catch(() => {});
  await until(
    async () => {
      await stage.revive();
      return (await status(thread).catch(() => "")) === "quarantined";
    },
    () => "the quarantine",
  );
  const page = await open();
  await signIn(page, "/console/operations", admin);
  await page.getByRole("listitem").filter({ hasText: /quarantined\s*Poison/ }).waitFor();
  await shoot(page, "operations-trouble");
  rmSync(deadly);
  await page.getByRole("button", { name: `Retry ${thread}` }).click();
  await page.getByText("Nothing is stuck").waitFor();
  await until(async () => (await status(thread)) === "succeeded", () => "the end after the retry");
});
