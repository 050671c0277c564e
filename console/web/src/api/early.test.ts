// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from "vitest";

const signals: AbortSignal[] = [];
const asked: string[] = [];
let date = "";

beforeEach(() => {
  vi.resetModules();
  document.head.innerHTML = '<meta name="perdure-base" content="/console/"><meta name="perdure-api" content="/proxy/">';
  vi.stubGlobal("fetch", async (to: string, init: RequestInit) => {
    asked.push(`${new URL(to).pathname} ${new Headers(init.headers).get("Accept")} ${new Headers(init.headers).get("Perdure-Console")}`);
    if (init.signal) signals.push(init.signal);
    const stream = to.endsWith("/events");
    return new Response(stream ? 'id: 1\nevent: created\ndata: {"seq":1,"kind":"created"}\n\n' : "{}", { headers: { "Content-Type": stream ? "text/event-stream" : "application/json", Date: date } });
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
  globalThis.perdureEarly = undefined;
  asked.length = signals.length = 0;
  date = "";
});

async function open(path: string) {
  (window as unknown as { happyDOM: { setURL(url: string): void } }).happyDOM.setURL(`http://127.0.0.1${path}`);
  await import("../early");
  const before = [...asked];
  return { before, ...(await import("./client")), ...(await import("./early")) };
}

test("what the page of a thread asks first is asked before it begins, and once", async () => {
  const { before, api, perdure, dropEarly } = await open("/console/threads/t-1");
  expect(before).toEqual([
    "/proxy/v1/me application/json 1",
    "/proxy/v1/threads/t-1/events text/event-stream 1",
    "/proxy/v1/threads/t-1 application/json 1",
    "/proxy/v1/threads/t-1/state application/json 1",
  ]);
  const path = { thread: "t-1" };
  await Promise.all([api.get("/v1/me"), api.get("/v1/threads/{thread}", { path }), perdure.follow("t-1").next()]);
  expect(asked).toHaveLength(4);
  dropEarly();
  expect(signals.map((one) => one.aborted)).toEqual([true, false, true, true]); // the stream goes on
  await api.get("/v1/threads/{thread}/state", { path });
  await api.get("/v1/me");
  expect(asked.slice(4)).toEqual(["/proxy/v1/threads/t-1/state application/json 1", "/proxy/v1/me application/json 1"]);
});

test("the time is not that of a response that has waited", async () => {
  date = "Fri, 02 Jan 2026 15:04:05 GMT";
  const { api } = await open("/console/threads");
  const { serverNow } = await import("@/lib/time");
  await api.get("/v1/me");
  expect(Math.abs(serverNow() - Date.now())).toBeLessThan(1000);
  await api.get("/v1/me");
  expect(Math.abs(serverNow() - Date.parse(date))).toBeLessThan(60_000);
});

test("whoever stops reading stops the request", async () => {
  const { perdure } = await open("/console/threads/t-1");
  const stop = new AbortController();
  const stream = perdure.follow("t-1", { signal: stop.signal });
  await stream.next();
  stop.abort();
  await expect(stream.next()).rejects.toBeDefined();
  expect(signals[1]?.aborted).toBe(true);
});

test("other pages ask only who is there, and those that need a login nothing", async () => {
  expect((await open("/console/threads")).before).toEqual(["/proxy/v1/me application/json 1"]);
});

test.each(["/console/login", "/console/threads/t-1#token=abc"])("%s asks nothing", async (path) => {
  expect((await open(path)).before).toEqual([]);
});

test("a page that has begun is not asked for again", async () => {
  await import("./client");
  expect((await open("/console/threads/t-1")).before).toEqual([]);
});
