import { expect, test } from "vitest";
import { Perdure, type Update } from "../../src/index.js";
import { BlockReader } from "../../src/stream.js";
import { brief, delta, event, fake, lost, problem, stream } from "./kit.js";

const url = "http://perdure.test";
const resume = { maxAttempts: 3, delayMs: 0 };

async function all(updates: AsyncIterable<Update>) {
  const seen: Update[] = [];
  let error: unknown;
  try {
    for await (const update of updates) seen.push(update);
  } catch (thrown) {
    error = thrown;
  }
  return { seqs: seen.flatMap((one) => one.event?.seq ?? []), seen, error };
}

test("blocks are the same wherever the text is cut", () => {
  const text = 'retry: 200\r\n: hello\r\n\r\nid: 7-x\r\nevent: step\r\ndata: {"a":\r\ndata: "é: b"}\r\n\r\ndata\n\n:\n\nevent: open\ndata:{}\n\n';
  const want = [
    { id: "7-x", event: "step", data: '{"a":\n"é: b"}' },
    { id: null, event: "message", data: "" },
    { id: null, event: "open", data: "{}" },
  ];
  for (let cut = 0; cut <= text.length; cut++) {
    const reader = new BlockReader();
    expect([...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))]).toEqual(want);
    expect(reader.retry).toBe(200);
  }
});

test("a stream that is cut goes on after the last event, as often as it takes", async () => {
  const { fetch, seen } = fake((_, nth) => {
    if (nth === 1) return brief(event(1), event(2));
    if (nth === 3) return problem("stopping", 503, { "Retry-After": "0" });
    if (nth === 5) return brief(event(3), "id: 4\nevent: st"); // half an event
    if (nth === 6) return brief(event(4, "ended"), 'id: 4.done\nevent: done\ndata: {"run":"r","status":"succeeded"}\n\n');
    return new TypeError("fetch failed");
  });
  const states: string[] = [];
  const { seqs, seen: got, error } = await all(new Perdure({ url, fetch, resume: { maxAttempts: 4, delayMs: 0 } }).follow("t", { run: "r", onConnection: (now) => states.push(now) }));
  expect(error).toBeUndefined();
  expect(seqs).toEqual([1, 2, 3, 4]);
  expect(got.at(-1)?.done).toMatchObject({ status: "succeeded" });
  expect(seen.map((one) => one.headers["last-event-id"])).toEqual([undefined, "2", "2", "2", "2", "3"]);
  expect(states).toEqual(["connecting", "live", "lost", "live", "lost", "live", "ended"]);
});

test("whatever a proxy says while the server restarts, the stream goes on", async () => {
  const says = [403, 404, 400, 503];
  const { fetch } = fake((_, nth) => {
    const status = nth > 1 ? says[nth - 2] : undefined;
    if (status) return new Response("<html>no such host", { status });
    return nth === 1 ? brief(event(1)) : brief(event(2, "ended"), 'id: 2.done\nevent: done\ndata: {"run":"r","status":"succeeded"}\n\n');
  });
  const { seqs, error } = await all(new Perdure({ url, fetch, resume: { delayMs: 0 } }).follow("t", { run: "r" }));
  expect([seqs, error]).toEqual([[1, 2], undefined]);
});

test("it gives up after maxAttempts in a row without receiving anything", async () => {
  const { fetch, seen } = fake((_, nth) => (nth === 2 ? brief(event(1)) : new TypeError("fetch failed")));
  const { seqs, error } = await all(new Perdure({ url, fetch, resume }).follow("t"));
  expect(seqs).toEqual([1]);
  expect(error).toMatchObject({ type: "offline" });
  expect(seen).toHaveLength(2 + 3);
  // What every stream begins with does not count.
  for (const [text, wants] of [["retry: 1\n\n", 3], [": ping\n\n", 3], ['event: open\ndata: {}\n\n', 3]] as const) {
    const hollow = fake(() => brief(text));
    const { error } = await all(new Perdure({ url, fetch: hollow.fetch, resume: { maxAttempts: 2, delayMs: 0 } }).follow("t"));
    expect(error, text).toMatchObject({ type: "offline" });
    expect(hollow.seen).toHaveLength(wants);
  }
  const once = fake(() => new TypeError("fetch failed"));
  await all(new Perdure({ url, fetch: once.fetch }).follow("t", { resume: { maxAttempts: 0 } }));
  expect(once.seen).toHaveLength(1);
});

test.each([
  ["no-thread", 404],
  ["restored", 410],
  ["scope", 403],
  ["corrupt", 422],
])("%s ends it at once", async (type, status) => {
  const { fetch, seen } = fake(() => problem(type, status));
  expect((await all(new Perdure({ url, fetch, resume }).follow("t", { after: "7-x" }))).error).toMatchObject({ type, status });
  expect(seen.map((one) => one.headers["last-event-id"])).toEqual(["7-x"]);
});

test.each([
  ['event: erased\ndata: {"kind":"erased"}\n\n', "erased", 410],
  ['event: erased\ndata: {"kind":"erased","name":"archive"}\n\n', "archived", 410],
  ['event: corrupt\ndata: {"type":"urn:perdure:problem:corrupt","title":"damaged","detail":"entry 3"}\n\n', "corrupt", 422],
  [event(2, "moved", { name: "elsewhere" }), "moved", 409],
  [event(3), "order", 0],
  [event(1), "order", 0],
])("what cannot go on is told: %j", async (text, type, status) => {
  const { fetch, seen } = fake(() => brief(event(1), 'event: later\ndata: {"of":"a later version"}\n\n', text));
  const { seqs, error } = await all(new Perdure({ url, fetch, resume }).follow("t"));
  expect(error).toMatchObject({ type, status });
  expect(seqs).toEqual(type === "moved" ? [1, 2] : [1]);
  expect(seen).toHaveLength(1);
});

test("timeoutMs is how long it waits for a stream to begin", async () => {
  const { fetch, seen } = fake(({ signal }) => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(lost()))));
  const { error } = await all(new Perdure({ url, fetch, timeoutMs: 1, resume: { maxAttempts: 1, delayMs: 0 } }).follow("t"));
  expect(error).toMatchObject({ type: "offline" });
  expect(seen).toHaveLength(2);
});

test("204 says that there is no more, and what is no event stream is tried again", async () => {
  const { fetch } = fake((_, nth) => (nth === 1 ? new Response("<html>", { headers: { "Content-Type": "text/html" } }) : new Response(null, { status: 204 })));
  expect(await all(new Perdure({ url, fetch, resume }).follow("t", { after: 4, run: "r" }))).toMatchObject({ seqs: [], error: undefined });
});

test("a signal ends a stream with its reason, and so does a caller that leaves", async () => {
  const open = stream(event(1));
  const { fetch } = fake(({ signal }) => {
    signal?.addEventListener("abort", open.cut);
    return open.response;
  });
  const stop = new AbortController();
  const seqs: unknown[] = [];
  const reading = (async () => {
    for await (const { event } of new Perdure({ url, fetch }).follow("t", { signal: stop.signal })) {
      seqs.push(event?.seq);
      setTimeout(() => stop.abort(new Error("enough")));
    }
  })();
  await expect(reading).rejects.toThrow("enough");
  expect(seqs).toEqual([1]);
  const other = fake(() => brief(event(1), event(2)));
  for await (const { event } of new Perdure({ url, fetch: other.fetch }).follow("t")) {
    expect(event?.seq).toBe(1);
    break;
  }
  expect(other.seen[0]?.signal?.aborted).toBe(true);
});

test("what is asked for is in the address", async () => {
  const { fetch, seen } = fake(() => new Response(null, { status: 204 }));
  const client = new Perdure({ url, fetch });
  await all(client.follow("a/b", { run: "newest", until: "wait", deltas: false }));
  for await (const _ of client.watch({ user: "ann" }));
  expect(seen.map((one) => one.path)).toEqual(["/v1/threads/a%2Fb/events?run=newest&until=wait&deltas=no", "/v1/events?user=ann"]);
});

test("changes in the list of threads are told", async () => {
  const { fetch } = fake((_, nth) => (nth === 1 ? brief("event: open\ndata: {}\n\n", 'event: thread\ndata: {"thread":{"id":"t"}}\n\n', 'event: gone\ndata: {"gone":"u"}\n\n') : new Response(null, { status: 204 })));
  const news = [];
  for await (const one of new Perdure({ url, fetch, resume }).watch()) news.push(one);
  expect(news).toEqual([{ kind: "open" }, { kind: "thread", thread: { id: "t" } }, { kind: "gone", thread: "u" }]);
});

test("deltas come between events", async () => {
  const { fetch } = fake((_, nth) => (nth === 1 ? brief(delta(0, "a"), event(1)) : new Response(null, { status: 204 })));
  const { seen } = await all(new Perdure({ url, fetch, resume }).follow("t"));
  expect(seen.map((one) => one.delta?.data ?? one.event?.seq)).toEqual(["a", 1]);
});
