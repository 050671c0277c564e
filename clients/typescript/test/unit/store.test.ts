import { expect, test } from "vitest";
import { Perdure, ThreadStore, type ThreadView } from "../../src/index.js";
import { delta, event, fake, json, problem, stream } from "./kit.js";

const url = "http://perdure.test";

function until(store: ThreadStore, so: (view: ThreadView) => unknown): Promise<ThreadView> {
  return new Promise((resolve) => {
    const look = () => void (so(store.snapshot()) && resolve(store.snapshot()));
    store.subscribe(look);
    look();
  });
}

test("a start that overtakes the first look at a new thread is followed", async () => {
  let posted = () => {};
  const accepted = new Promise<void>((resolve) => (posted = resolve));
  const { fetch } = fake(async ({ method, path }, nth) => {
    if (method === "POST") {
      setTimeout(posted);
      return json({ thread: "t", id: "r" }, 202);
    }
    if (nth === 1) {
      await accepted; // the look began before the start, and ends after it
      return problem("no-thread", 404);
    }
    if (path.includes("/events")) return stream().response;
    return json(path.endsWith("/messages") ? { seq: 1, messages: [] } : { id: "t", seq: 1, runs: [{ id: "r", status: "running" }] });
  });
  const store = new ThreadStore(new Perdure({ url, fetch }), "t");
  store.subscribe(() => {});
  await store.start("f", "hello");
  expect((await until(store, (view) => view.connection === "live")).run).toMatchObject({ id: "r" });
});

test("what was read late does not replace what is known, and a rewind reads everything again", async () => {
  const streams: ReturnType<typeof stream>[] = [];
  let slow = (_: Response) => {};
  let asked = () => {};
  const second = new Promise<void>((resolve) => (asked = resolve));
  let reads = 0;
  const { fetch, seen } = fake(({ path }) => {
    if (path.includes("/events")) {
      streams.push(stream());
      return streams.at(-1)!.response;
    }
    if (path.endsWith("/messages")) return json({ seq: streams.length ? 3 : 1, messages: streams.length ? [] : [{ id: "r/a", agent: "a", message: { role: "user" } }] });
    if (++reads === 2) {
      asked();
      return new Promise((resolve) => (slow = resolve));
    }
    return json({ id: "t", seq: streams.length ? 3 : 1, runs: [] });
  });
  const store = new ThreadStore(new Perdure({ url, fetch }), "t");
  expect((await until(store, (view) => view.connection === "live")).messages).toHaveLength(1);
  streams[0]!.send(event(2));
  await second;
  streams[0]!.send(event(3, "rewound", { to: 0 }));
  const view = await until(store, ({ thread, connection }) => thread?.seq === 3 && connection === "live" && streams.length === 2);
  expect(view.messages).toEqual([]);
  slow(json({ id: "t", seq: 2, runs: [{ id: "old" }] }));
  streams[1]!.send(delta(0, "on"));
  expect((await until(store, ({ text }) => text === "on")).thread).toMatchObject({ seq: 3, runs: [] });
  expect(seen.filter((one) => one.path.includes("/events")).map((one) => one.headers["last-event-id"])).toEqual(["1", "3"]);
});

test("a thread that was erased is gone, and one that was restored is read again", async () => {
  for (const [type, lives] of [["erased", 0], ["restored", 1]] as const) {
    let life = "a";
    const { fetch, seen } = fake(({ path, headers }) => {
      if (life === "") return problem("no-thread", 404);
      if (!path.includes("/events")) return json(path.endsWith("/messages") ? { seq: 5, messages: [] } : { id: "t", seq: 5, life, runs: [] });
      if (headers["last-event-id"] !== "5-a") return stream().response;
      life = lives ? "b" : "";
      return problem(type, 410);
    });
    const store = new ThreadStore(new Perdure({ url, fetch }), "t");
    if (lives) {
      expect((await until(store, (view) => view.connection === "live")).thread?.life).toBe("b");
      expect(seen.at(-1)?.headers["last-event-id"]).toBe("5-b");
    } else expect(await until(store, (view) => view.connection === "ended" && view.ready && view.problem)).toMatchObject({ thread: undefined, problem: { type: "erased" } });
  }
});

test("resume says how often a thread is tried, at first and later", async () => {
  const { fetch, seen } = fake(() => new TypeError("fetch failed"));
  const store = new ThreadStore(new Perdure({ url, fetch, retry: { maxAttempts: 0 } }), "t", { resume: { maxAttempts: 2, delayMs: 0 } });
  expect((await until(store, (view) => view.problem)).problem).toMatchObject({ type: "offline" });
  expect(seen).toHaveLength(3);
});

test("a gateway that refuses for good is told while it is tried on, and no longer once the thread is read", async () => {
  let login = true;
  let open = stream();
  const { fetch } = fake(({ path }) => {
    if (login) return new Response("<html>log in", { status: 403 });
    if (path.includes("/events")) return (open = stream("retry: 1\n\n")).response;
    return json(path.endsWith("/messages") ? { seq: 1, messages: [] } : { id: "t", seq: 1, runs: [] });
  });
  const store = new ThreadStore(new Perdure({ url, fetch }), "t", { resume: { delayMs: 1 } });
  expect(await until(store, (view) => view.problem)).toMatchObject({ ready: false, connection: "lost", problem: { type: "gateway", status: 403 } });
  login = false;
  expect((await until(store, (view) => view.connection === "live")).problem).toBeUndefined();
  login = true;
  open.end();
  expect(await until(store, (view) => view.problem)).toMatchObject({ ready: true, connection: "lost", problem: { type: "gateway" } });
  login = false;
  expect((await until(store, (view) => view.connection === "live")).problem).toBeUndefined();
  login = true;
  open.send(event(2)); // the stream is there, and what it says of the thread cannot be read
  expect(await until(store, (view) => view.problem)).toMatchObject({ connection: "live", problem: { type: "gateway" } });
  login = false;
  await until(store, (view) => !view.problem);
});
