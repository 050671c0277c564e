import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { Perdure, Problem } from "../../src/index.js";
import { takesKey } from "../../src/operations.js";
import { fake, json, lost, problem } from "./kit.js";

const url = "http://perdure.test";
const quick = { maxAttempts: 4, delayMs: 0 };

interface Documented {
  operationId: string;
  parameters?: { name: string; in: string }[];
  requestBody?: { content: object };
  responses: Record<string, { content?: object }>;
}

const document = JSON.parse(readFileSync(new URL("../../../../console/web/types/openapi.json", import.meta.url), "utf8")) as { paths: Record<string, Record<string, Documented>> };
const operations = Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })));

describe("every operation of the OpenAPI document", () => {
  test.each(operations.map((one) => [one.operation.operationId, one] as const))("%s", async (_, { path, method, operation }) => {
    const route = `${method} ${path}`;
    const [status = "", { content = {} } = {}] = Object.entries(operation.responses).find(([code, { content }]) => /^2/.test(code) && !(content && "text/event-stream" in content && !("application/json" in content))) ?? ["200"];
    const type = "application/json" in content ? "application/json" : Object.keys(content)[0];
    const { fetch, seen } = fake(() => new Response(status === "204" ? null : '{"a":1}', { status: Number(status), headers: type ? { "Content-Type": type } : {} }));
    const client = new Perdure({ url, fetch });
    const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? "");
    const takes = Object.keys(operation.requestBody?.content ?? {})[0];
    const bytes = takes !== undefined && takes !== "application/json";
    const input = {
      path: Object.fromEntries(names.map((name) => [name, `a ${name}/?`])),
      query: Object.fromEntries((operation.parameters ?? []).filter((one) => one.in === "query").map((one) => [one.name, "x"])),
      body: bytes ? new Blob(["bytes"]) : takes ? { b: 2 } : undefined,
    };
    const got = await (client.request as (route: string, input: object) => Promise<unknown>)(route, input);
    const sent = seen[0]!;
    expect(sent.method).toBe(method);
    const [sentPath = "", query = ""] = sent.path.split("?");
    expect(decodeURIComponent(sentPath)).toBe(path.replace(/\{(\w+)\}/g, "a $1/?"));
    expect([...new URLSearchParams(query).keys()]).toEqual(Object.keys(input.query));
    expect("idempotency-key" in sent.headers, "an idempotency key").toBe((operation.parameters ?? []).some((one) => one.name === "Idempotency-Key"));
    if (bytes) expect(sent.body).toBe(input.body);
    else expect(sent.body).toBe(takes ? '{"b":2}' : undefined);
    if (status === "204") expect(got).toBeUndefined();
    else if (type === "application/json") expect(got).toEqual({ a: 1 });
    else expect(got).toBeInstanceOf(Response);

    // What is not of that kind is not the server's.
    const none = { url, retry: { maxAttempts: 0 } };
    const page = fake(() => new Response("<html>", { headers: { "Content-Type": "text/html; charset=utf-8" } }));
    await expect((new Perdure({ ...none, fetch: page.fetch }).request as (route: string, input: object) => Promise<unknown>)(route, input)).rejects.toMatchObject({ name: "Problem", type: "gateway", status: 502 });
    const empty = fake(() => new Response(null, { status: 204 }));
    const nothing = (new Perdure({ ...none, fetch: empty.fetch }).request as (route: string, input: object) => Promise<unknown>)(route, input);
    if ("204" in operation.responses) expect(await nothing).toBeUndefined();
    else await expect(nothing).rejects.toMatchObject({ name: "Problem", type: "gateway", status: 502 });
  });
});

test.each([
  ["a page", () => new Response("<html>", { headers: { "Content-Type": "text/html" } }), 502, 5],
  ["half a JSON", () => new Response('{"id":', { headers: { "Content-Type": "application/json" } }), 502, 5],
  ["a 429", () => new Response("slow down", { status: 429, headers: { "Retry-After": "0" } }), 429, 5],
  ["a 429 for an hour", () => new Response("slow down", { status: 429, headers: { "Retry-After": "3600" } }), 429, 1],
  ["a 503", () => new Response("", { status: 503 }), 503, 5],
  ["a 521", () => new Response("", { status: 521 }), 521, 5],
  ["a 403", () => new Response("blocked", { status: 403 }), 403, 1],
  ["a 404 with a problem of another", () => json({ type: "about:blank", title: 7, detail: {} }, 404), 404, 1],
])("%s of a gateway is a Problem, and a read or a start is repeated if that may help", async (_, answer, status, many) => {
  const { fetch, seen } = fake(answer);
  const client = new Perdure({ url, fetch, retry: quick });
  await expect(client.thread("t")).rejects.toMatchObject({ name: "Problem", type: "gateway", status });
  await expect(client.start("f")).rejects.toMatchObject({ name: "Problem", type: "gateway", status });
  expect(seen).toHaveLength(2 * many);
});

test("what cannot be sent is an error at once", async () => {
  for (const wrong of ["not a url", "perdure.example", "localhost:7373", "ftp://perdure.example", "http://", "/relative"]) expect(() => new Perdure({ url: wrong }), wrong).toThrow(TypeError);
  const { fetch, seen } = fake(() => json({}));
  const secret = new TypeError("perdure: a header cannot carry the token");
  await expect(new Perdure({ url, fetch, token: "tök\u2026en" }).thread("t")).rejects.toThrow(secret);
  await expect(new Perdure({ url, fetch, token: "to\nken" }).follow("t").next()).rejects.toThrow(secret);
  expect(seen).toEqual([]);
});

test("a key may be any text that a header can carry, and is sent as UTF-8", async () => {
  const { fetch, seen } = fake(() => new Response(null, { status: 204 }));
  const client = new Perdure({ url, fetch });
  await client.signal("t", "paid", 1, { key: "Zahlung für 東京" });
  const sent = Uint8Array.from(seen[0]!.headers["idempotency-key"]!, (byte) => byte.charCodeAt(0));
  expect(new TextDecoder("utf-8", { fatal: true }).decode(sent)).toBe("Zahlung für 東京");
  for (const key of [" a", "a\n", "a\u0085b"]) await expect(client.signal("t", "paid", 1, { key })).rejects.toThrow(/a header cannot carry .* as Idempotency-Key/);
  expect(seen).toHaveLength(1);
});

test("a write that a gateway answers says whether it may have had its effect", async () => {
  for (const [status, may] of [[302, false], [429, false], [502, true], [521, true]] as const) {
    const { fetch } = fake(() => new Response("", { status, headers: { Location: "https://login.example/" } }));
    const error = await new Perdure({ url, fetch, retry: { maxAttempts: 0 } }).cancel("t").catch((error: unknown) => error);
    expect(error).toMatchObject({ type: "gateway", status });
    expect(/may have had its effect/.test(String(error)), String(error)).toBe(may);
  }
});

test("a write without a key is sent once, and one with a key again with the same key", async () => {
  for (const [route, many] of [["POST /v1/threads/{thread}/runs/{run}/cancel", 1], ["POST /v1/threads/{thread}/runs", 5], ["POST /v1/asks/{ask}/answer", 5], ["GET /v1/threads/{thread}", 5]] as const) {
    const { fetch, seen } = fake(lost);
    const client = new Perdure({ url, fetch, retry: quick });
    const sent = client.request(route as "POST /v1/threads/{thread}/runs", { path: { thread: "t", run: "r", ask: "a" } as { thread: string }, body: { flow: "f" } });
    await expect(sent).rejects.toMatchObject({ type: "offline", status: 0 });
    expect(seen.length, route).toBe(many);
    expect(new Set(seen.map((one) => one.headers["idempotency-key"])).size).toBe(1);
    expect(seen[0]?.headers["idempotency-key"] !== undefined).toBe(takesKey(route));
  }
  const { fetch, seen } = fake(lost);
  await expect(new Perdure({ url, fetch, retry: { maxAttempts: 1 } }).signal("t", "paid", 1, { key: "mine" })).rejects.toMatchObject({ type: "offline" });
  expect(seen[0]?.headers["idempotency-key"]).toBe("mine");
});

test("a header is given in whatever case", async () => {
  const { fetch, seen } = fake(() => json({}));
  const client = new Perdure({ url, fetch, headers: { accept: "text/plain", "x-from": "here" } });
  await client.request("POST /v1/runs", { headers: { "idempotency-key": "mine" }, body: { flow: "f" } });
  await client.request("POST /v1/uploads", { headers: { "content-type": "text/csv" }, body: new Blob(["a,b"]) });
  expect(seen.map((one) => one.headers)).toMatchObject([
    { "idempotency-key": "mine", accept: "application/json", "x-from": "here" },
    { "content-type": "text/csv" },
  ]);
});

test("an answer that is cut off in the middle is asked for again", async () => {
  const { fetch, seen } = fake((_, nth) => {
    if (nth === 2) return json({ id: "t" });
    const cut = new ReadableStream({ start: (controller) => controller.error(lost()) });
    return new Response(cut, { headers: { "Content-Type": "application/json" } });
  });
  expect(await new Perdure({ url, fetch, retry: quick }).thread("t")).toEqual({ id: "t" });
  expect(seen).toHaveLength(2);
});

test.each([
  ["stopping", 503, 2],
  ["overloaded", 503, 2],
  ["too-many", 429, 2],
  ["unavailable", 503, 1],
  ["quota", 429, 1],
  ["queue-full", 429, 1],
  ["busy", 409, 1],
])("a cancel that is refused with %s is sent %s %i times", async (type, status, many) => {
  const { fetch, seen } = fake((_, nth) => (nth === 1 ? problem(type, status, { "Retry-After": "0" }) : json({ id: "r" })));
  const sent = new Perdure({ url, fetch, retry: quick }).cancel("t").then(
    () => undefined,
    (error: unknown) => error,
  );
  const error = await sent;
  expect(seen).toHaveLength(many);
  if (many === 1) expect(error).toMatchObject({ type, status, detail: `it is ${type}`, retryAfterMs: 0 });
  else expect(error).toBeUndefined();
});

test("a token that a function gives is renewed when the server refuses it, once for all requests", async () => {
  let made = 0;
  const { fetch, seen } = fake((one) => (one.headers.authorization === "Bearer token-2" ? json({}) : problem("unauthorized", 401)));
  const client = new Perdure({ url, fetch, token: async () => `token-${++made}` });
  await Promise.all([client.thread("a"), client.thread("b"), client.thread("c")]);
  expect(made).toBe(2);
  expect(seen).toHaveLength(6);
  await client.thread("d");
  expect(made).toBe(2);
});

test("a token that stays wrong is an error", async () => {
  const { fetch, seen } = fake(() => problem("unauthorized", 401));
  await expect(new Perdure({ url, fetch, token: "fixed" }).thread("t")).rejects.toMatchObject({ type: "unauthorized", status: 401 });
  expect(seen).toHaveLength(1);
  await expect(new Perdure({ url, fetch, token: () => "same" }).thread("t")).rejects.toBeInstanceOf(Problem);
  expect(seen).toHaveLength(3);
});

test("a token that cannot be had is tried again", async () => {
  let tries = 0;
  const { fetch, seen } = fake(() => json({}));
  const token = async () => {
    if (++tries < 3) throw new Error("the back end is away");
    return "there";
  };
  await new Perdure({ url, fetch, token, retry: quick }).thread("t");
  expect(seen.map((one) => one.headers.authorization)).toEqual(["Bearer there"]);
});

test("with cookies, requests have the header that the server wants", async () => {
  const { fetch, seen } = fake(() => json({}));
  await new Perdure({ url: `${url}/`, fetch, cookies: true }).thread("t");
  expect(seen[0]).toMatchObject({ credentials: "same-origin", path: "/v1/threads/t" });
  expect(seen[0]?.headers).toMatchObject({ "perdure-console": "1" });
  await new Perdure({ url, fetch, token: "x" }).thread("t");
  expect(seen[1]?.credentials).toBe("omit");
});

test("a signal ends a request and its retries with its reason", async () => {
  const stop = new AbortController();
  const { fetch, seen } = fake((_, nth) => {
    if (nth === 2) stop.abort(new Error("enough"));
    return lost();
  });
  await expect(new Perdure({ url, fetch, retry: quick }).thread("t", { signal: stop.signal })).rejects.toThrow("enough");
  expect(seen).toHaveLength(2);
});

test("names that a browser would take for a folder are refused", () => {
  const { fetch, seen } = fake(() => json({}));
  const client = new Perdure({ url, fetch });
  return Promise.all(["", ".", ".."].map((thread) => expect(client.thread(thread)).rejects.toThrow(TypeError))).then(() => expect(seen).toEqual([]));
});

test("JSON can be read exactly, and a client needs an address", async () => {
  const { fetch } = fake(() => json({ n: 1 }));
  const client = new Perdure({ url, fetch, parse: (text) => ({ text }) });
  expect(await client.thread("t")).toEqual({ text: '{"n":1}' });
  expect(() => new Perdure()).toThrow("url");
});

test("what is around a token does not count, and a function that gave rubbish is asked again", async () => {
  const given = ["<html>\u2026", "good\n"];
  const { fetch, seen } = fake(() => json({}));
  const client = new Perdure({ url, fetch, token: () => given.shift()! });
  await expect(client.thread("t")).rejects.toThrow(TypeError);
  await client.thread("t");
  await new Perdure({ url, fetch, token: " fixed\r\n" }).thread("t");
  expect(seen.map((one) => one.headers.authorization)).toEqual(["Bearer good", "Bearer fixed"]);
});
