// In Node.js, against real servers. It uses the built package, as those who install it do.
import { Live, Perdure, Problem, ThreadStore, type ThreadView, type Update } from "@perdure/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Stage } from "../../../../console/web/e2e/server.js";

let stage: Stage;
let perdure: Perdure;
beforeAll(async () => {
  stage = await Stage.dev();
  perdure = new Perdure({ url: stage.url, retry: { maxAttempts: 40, delayMs: 50 }, resume: { delayMs: 50 } });
});
afterAll(() => stage?.end());

/** Waits until a view is as it should be. */
function until(store: ThreadStore, so: (view: ThreadView) => unknown): Promise<ThreadView> {
  return new Promise((resolve) => {
    const look = () => {
      if (!so(store.snapshot())) return;
      stop();
      resolve(store.snapshot());
    };
    const stop = store.subscribe(look);
    queueMicrotask(look);
  });
}

/** What a fresh reader sees. */
async function fresh(id: string, so: (view: ThreadView) => unknown = (view) => view.ready && view.connection === "live"): Promise<ThreadView> {
  return until(new ThreadStore(perdure, id), so);
}

const text = (view: ThreadView) => view.messages.at(-1)?.message.parts?.map((part) => part.text ?? "").join("");

test("a run is started, followed and waited for", async () => {
  const run = await perdure.start("count", 5, { title: "five" });
  const updates: Update[] = [];
  for await (const update of perdure.follow(run.thread, { run: run.id })) updates.push(update);
  expect(updates.at(-1)?.done).toMatchObject({ run: run.id, status: "succeeded", output: 10 });
  expect(updates.flatMap(({ event }) => (event?.kind === "step" ? [event.value] : []))).toEqual([0, 1, 2, 3, 4]);
  expect(await perdure.wait(run.thread)).toMatchObject({ id: run.id, output: 10 });
  const listed = [];
  for await (const thread of perdure.threads({ limit: 1 })) listed.push(thread.id);
  expect(listed).toContain(run.thread);
});

test("problems have a type, a status and a detail", async () => {
  const problem = await perdure.thread("nowhere").catch((error: unknown) => error);
  expect(problem).toBeInstanceOf(Problem);
  expect(problem).toMatchObject({ type: "no-thread", status: 404, detail: expect.stringContaining("nowhere") });
  await expect(perdure.start("unknown")).rejects.toMatchObject({ type: "no-flow", status: 422 });
});

test("a start whose answers are lost happens once", async () => {
  let lost = 0;
  const careless = new Perdure({
    url: stage.url,
    retry: { delayMs: 1 },
    fetch: async (to, init) => {
      const response = await fetch(to, init);
      if (lost++ < 3) throw new TypeError("fetch failed");
      return response;
    },
  });
  const { thread } = await careless.start("count", 1, { thread: "once" });
  expect(lost).toBe(4);
  await perdure.wait(thread);
  expect((await perdure.thread(thread)).runs).toHaveLength(1);
});

test("a file that was uploaded can be attached, and memory has places of several segments", async () => {
  const upload = await perdure.upload(new Blob(["hello"], { type: "text/plain" }), "hello.txt");
  expect(upload).toMatchObject({ size: 5, name: "hello.txt" });
  const { thread } = await perdure.start("chat", [{ text: "look" }, { media: { blob: upload.blob } }], { attach: [upload.id] });
  await perdure.wait(thread);
  const blob = await perdure.request("GET /v1/blobs/{thread}/{hash}", { path: { thread, hash: upload.blob } });
  expect(await blob.text()).toBe("hello");
  const place = ["user", "ann", "a/b c"];
  await perdure.request("PUT /v1/memory/{place}", { path: { place }, body: { value: { likes: "tea" } } });
  expect(await perdure.request("GET /v1/memory/{place}", { path: { place } })).toMatchObject({ value: { likes: "tea" } });
  const lines = await (await perdure.request("GET /v1/threads/{thread}/export", { path: { thread } })).blob();
  const copy = await perdure.request("POST /v1/threads/import", { query: { as: "copy" }, headers: { "Content-Type": "application/x-ndjson" }, body: lines });
  expect(copy.id).toBe("copy");
});

test("a store follows a thread that does not exist yet, through an ask to its end", async () => {
  const store = new ThreadStore(perdure, "asks");
  expect(await until(store, (view) => view.ready)).toMatchObject({ thread: undefined, messages: [] });
  const keep = store.subscribe(() => {});
  await store.start("chat", "refund A-17");
  const asked = await until(store, (view) => view.asks.length === 1);
  expect(asked.sending).toEqual([]);
  const ask = asked.asks[0]!;
  await store.answer(ask.id, { decision: "approve" });
  const ended = await until(store, (view) => view.run?.status === "succeeded");
  expect(text(ended)).toBe("It is settled: refunded 42 EUR for A-17.");
  expect(ended).toMatchObject({ asks: [], live: [], text: "" });
  const again = await fresh("asks");
  expect(ended.messages).toEqual(again.messages);
  expect(ended.thread).toEqual(again.thread);
  await perdure.request("POST /v1/threads/{thread}/rewind", { path: { thread: "asks" }, body: { to: ended.thread!.runs![0]!.seq - 1 } });
  await until(store, (view) => view.messages.length === 0);
  await perdure.request("DELETE /v1/threads/{thread}", { path: { thread: "asks" } });
  expect((await until(store, (view) => view.problem)).problem).toMatchObject({ type: "erased", status: 410 });
  keep();
});

test("a reply that a killed server began ends as if nothing had happened", async () => {
  const store = new ThreadStore(perdure, "killed");
  const keep = store.subscribe(() => {});
  const events: number[] = [];
  const live = new Live();
  const shown = new Set<string>();
  const stop = new AbortController();
  await store.start("chat", "Tell me a story.");
  const following = (async () => {
    for await (const { event, delta } of perdure.follow("killed", { signal: stop.signal })) {
      if (delta) live.add(delta);
      if (event) {
        events.push(event.seq);
        live.settle(event);
      }
      for (const step of live.show()) shown.add(step.text);
    }
  })().catch((error: unknown) => error);
  const half = await until(store, (view) => view.text.length > 40);
  await stage.kill();
  await until(store, (view) => view.connection === "lost");
  await stage.again();
  const ended = await until(store, (view) => view.run?.status === "succeeded");
  const story = text(ended) ?? "";
  expect(story.startsWith(half.text)).toBe(true);
  expect(ended).toMatchObject({ live: [], text: "", sending: [] });
  const again = await fresh("killed");
  expect(ended.messages).toEqual(again.messages);
  expect(ended.thread).toEqual(again.thread);
  for (const one of shown) expect(story.startsWith(one)).toBe(true); // passes are never mixed
  while (events.at(-1) !== ended.thread?.seq) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(events).toEqual(events.map((_, at) => at + 1));
  stop.abort();
  expect(await following).toMatchObject({ name: "AbortError" });
  keep();
});
