// @vitest-environment happy-dom
import { act, cleanup, configure, render, renderHook, waitFor } from "@testing-library/react";
import { StrictMode } from "react";
import { afterEach, expect, test } from "vitest";
import { Perdure } from "../../src/index.js";
import { PerdureProvider, useRun, useThread } from "../../src/react.js";
import { delta, event, fake, json, problem, stream } from "./kit.js";

const url = "http://perdure.test";
afterEach(cleanup);
configure({ asyncUtilTimeout: 30_000 }); // it only bounds tests that fail

/** A server with one thread, which exists once a run was started on it. */
function oneThread(made = false) {
  const messages: object[] = [];
  const run = { thread: "t", id: "r", seq: 1, flow: "f", status: "running", asks: [] as object[], output: undefined as unknown };
  const thread = { id: "t", seq: 1, status: "running", runs: [run] };
  const streams: ReturnType<typeof stream>[] = [];
  const { fetch, seen } = fake(({ method, path, signal }) => {
    if (method === "POST") {
      made = true;
      return json(path.includes("/asks/") ? { id: "ask" } : run, 202);
    }
    if (!made) return problem("no-thread", 404);
    if (path.includes("/events")) {
      const open = stream("retry: 1\n");
      streams.push(open);
      signal?.addEventListener("abort", () => {
        try {
          open.cut();
        } catch {} // it has ended
      });
      return open.response;
    }
    return json(path.endsWith("/messages") ? { seq: thread.seq, messages } : thread);
  });
  const client = new Perdure({ url, fetch, resume: { delayMs: 1 } });
  const open = () => seen.filter((one) => one.path.includes("/events") && !one.signal?.aborted).length;
  return { client, seen, run, thread, messages, streams, open, last: () => streams.at(-1)! };
}

const strict = (client: Perdure) => ({ wrapper: ({ children }: { children: React.ReactNode }) => <StrictMode><PerdureProvider client={client}>{children}</PerdureProvider></StrictMode> });

test("a thread is shown live, through an ask, over a lost connection", async () => {
  const s = oneThread(true);
  const { result } = renderHook(() => useThread("t"), strict(s.client));
  expect(result.current).toMatchObject({ ready: false, connection: "connecting" });
  await waitFor(() => expect(result.current).toMatchObject({ ready: true, connection: "live", run: { id: "r" } }));
  expect(s.open()).toBe(1);
  s.last().send(delta(0, { text: "Dear ", agent: "clerk", part: 0 }) + delta(1, { text: "Ann", part: 0 }));
  await waitFor(() => expect(result.current.text).toBe("Dear Ann"));
  s.run.asks = [{ id: "ask", run: "r" }];
  s.thread.seq = 2;
  const record = { id: "r/a/reply", agent: "clerk", message: { role: "assistant", parts: [{ text: "Dear Ann," }] } };
  s.last().send(event(2, "step", { path: "/a/reply", value: record }));
  await waitFor(() => expect(result.current).toMatchObject({ text: "", live: [], asks: [{ id: "ask" }], messages: [record] }));
  await act(() => result.current.answer("ask", { decision: "approve" }).then(() => {}));
  expect(s.seen.find((one) => one.method === "POST")).toMatchObject({ path: "/v1/asks/ask/answer", body: '{"decision":"approve"}' });
  s.last().end();
  await waitFor(() => expect(s.streams).toHaveLength(2));
  expect(s.seen.filter((one) => one.path.includes("/events")).at(-1)?.headers["last-event-id"]).toBe("2");
  s.run.asks = [];
  s.run.status = "succeeded";
  s.thread.seq = 3;
  s.last().send(event(3, "ended"));
  await waitFor(() => expect(result.current).toMatchObject({ asks: [], run: { status: "succeeded" }, connection: "live" }));
});

test("a view is never of a later moment than its messages", async () => {
  const s = oneThread(true);
  const { result } = renderHook(() => useThread("t"), strict(s.client));
  await waitFor(() => expect(result.current.connection).toBe("live"));
  s.run.status = "succeeded";
  s.thread.seq = 3;
  const requests = s.seen.length;
  s.last().send(event(2));
  await waitFor(() => expect(s.seen.length).toBeGreaterThan(requests));
  s.last().send(delta(0, "on"));
  await waitFor(() => expect(result.current.text).toBe("on"));
  expect(result.current.thread?.seq).toBe(1);
  s.last().send(event(3, "ended"));
  await waitFor(() => expect(result.current.thread?.seq).toBe(3));
});

test("components of one thread share a stream, which ends with the last of them", async () => {
  const s = oneThread(true);
  const views: Record<string, unknown> = {};
  const Show = ({ name }: { name: string }) => {
    views[name] = useThread("t").live;
    return null;
  };
  const page = (...names: string[]) => <StrictMode><PerdureProvider client={s.client}>{names.map((name) => <Show key={name} name={name} />)}</PerdureProvider></StrictMode>;
  const { rerender, unmount } = render(page("a", "b"));
  await waitFor(() => expect(s.streams).toHaveLength(1));
  s.last().send(delta(0, "a"));
  await waitFor(() => expect(views.a).toHaveLength(1));
  expect(views.a).toBe(views.b);
  expect(s.open()).toBe(1);
  rerender(page("b"));
  s.last().send(delta(0, "b", { path: "/b" }));
  await waitFor(() => expect(views.b).toHaveLength(2));
  expect(s.open()).toBe(1);
  unmount();
  await waitFor(() => expect(s.open()).toBe(0));
  expect(s.streams).toHaveLength(1);
});

test("a run makes its thread, and a refresh finds it again", async () => {
  const s = oneThread();
  const made: string[] = [];
  const onThread = (id: string) => made.push(id);
  const { result, unmount } = renderHook(() => useRun("f", { resume: { maxAttempts: 3, delayMs: 1 }, onThread }), strict(s.client));
  expect(result.current).toMatchObject({ status: "idle", ready: true, starting: false, threadId: undefined });
  await act(() => result.current.start({ order: 7 }).then(() => {}));
  expect(made).toEqual(["t"]);
  await waitFor(() => expect(result.current).toMatchObject({ status: "running", threadId: "t", starting: false }));
  expect(s.seen.find((one) => one.method === "POST")?.body).toBe('{"flow":"f","input":{"order":7}}');
  unmount();
  s.run.status = "succeeded";
  s.run.output = 42;
  s.thread.seq = 9;
  const again = renderHook(() => useRun("f", { thread: "t" }), strict(s.client));
  await waitFor(() => expect(again.result.current).toMatchObject({ status: "succeeded", output: 42 }));
});

test("quick starts share the thread that the first one makes, and another thread makes it forgotten", async () => {
  const made: string[] = [];
  const posts: string[] = [];
  const { fetch } = fake(({ method, path }, nth) => {
    if (method !== "POST") return problem("no-thread", 404);
    posts.push(path);
    if (posts.length === 1) return problem("scope", 403);
    return json({ thread: path === "/v1/runs" ? `t${posts.length}` : path.split("/")[3], id: `r${nth}`, seq: 1, flow: "f", status: "running" }, 202);
  });
  const client = new Perdure({ url, fetch });
  const onThread = (id: string) => made.push(id);
  const { result, rerender } = renderHook(({ thread }: { thread?: string }) => useRun("f", { thread, onThread }), { initialProps: {}, ...strict(client) });
  await act(async () => {
    const { start } = result.current;
    const [failed, ...others] = await Promise.allSettled([start(1), start(2), start(3)]);
    expect(failed.status).toBe("rejected");
    expect(others).toMatchObject([{ value: { thread: "t2" } }, { value: { thread: "t2" } }]);
    expect(await start(4)).toMatchObject({ thread: "t2" }); // before the next render
  });
  expect(posts).toEqual(["/v1/runs", "/v1/runs", "/v1/threads/t2/runs", "/v1/threads/t2/runs"]);
  expect(made).toEqual(["t2"]);
  expect(result.current.threadId).toBe("t2");
  rerender({ thread: "other" });
  expect(result.current.threadId).toBe("other");
  rerender({});
  expect(result.current).toMatchObject({ threadId: undefined, status: "idle" });
  await act(() => result.current.start(5).then(() => {}));
  expect(made).toEqual(["t2", "t5"]);
});

test("what was sent is shown until the thread shows it", async () => {
  const s = oneThread();
  const { result } = renderHook(() => useThread("t"), strict(s.client));
  await waitFor(() => expect(result.current).toMatchObject({ ready: true, thread: undefined }));
  await act(() => result.current.start("f", "hello").then(() => {}));
  await waitFor(() => expect(result.current).toMatchObject({ sending: [{ input: "hello", run: "r" }], connection: "live" }));
  s.thread.seq = 2;
  s.last().send(event(2, "step", { path: "/a/input", value: { id: "r/a/input", agent: "a", message: { role: "user", parts: [{ text: "hello" }] } } }));
  await waitFor(() => expect(result.current).toMatchObject({ sending: [], messages: [{ id: "r/a/input" }] }));
});

test("a start that fails is no longer shown, and there is nothing to do without a thread or a client", async () => {
  const { fetch } = fake(({ method }) => (method === "POST" ? problem("scope", 403) : problem("no-thread", 404)));
  const client = new Perdure({ url, fetch });
  const { result } = renderHook(() => useThread("t", { client }));
  await waitFor(() => expect(result.current.ready).toBe(true));
  await act(() => expect(result.current.start("f", "hello")).rejects.toMatchObject({ type: "scope" }));
  await waitFor(() => expect(result.current.sending).toEqual([]));
  const none = renderHook(() => useThread(undefined, { client }));
  expect(none.result.current).toMatchObject({ ready: true, connection: "ended", messages: [] });
  await expect(none.result.current.cancel()).rejects.toThrow("no thread");
  expect(() => renderHook(() => useThread("t"))).toThrow("PerdureProvider");
});

test("a thread that may not be read says why", async () => {
  const { fetch } = fake(() => problem("scope", 403));
  const client = new Perdure({ url, fetch });
  const { result } = renderHook(() => useThread("t", { client }));
  await waitFor(() => expect(result.current).toMatchObject({ ready: true, connection: "ended", problem: { type: "scope", status: 403 } }));
});
