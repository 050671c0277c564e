// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { type Block, BlockReader, follow, type StreamState } from "./stream";

test("blocks are read however the text is cut", () => {
  const text = 'retry: 200\nid: 1\nevent: step\ndata: {"a":1}\n\n:\n\nid: 2-x\r\nevent: ended\r\ndata: one\r\ndata: two\r\n\r\n';
  const whole = new BlockReader();
  const want = whole.push(text);
  expect(want).toEqual([
    { id: "1", event: "step", data: '{"a":1}' },
    { id: "2-x", event: "ended", data: "one\ntwo" },
  ]);
  expect(whole.retry).toBe(200);
  for (let cut = 0; cut <= text.length; cut++) {
    const reader = new BlockReader();
    expect([...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))]).toEqual(want);
  }
});

const body = (text: string, status = 200) => new Response(status === 204 ? null : text, { status });

/** Answers the n-th connection with the n-th response. */
function followed(responses: (Response | Error)[], last?: string) {
  const ids: (string | undefined)[] = [];
  const blocks: Block[] = [];
  const states: StreamState[] = [];
  const waits: number[] = [];
  return new Promise<{ ids: typeof ids; blocks: Block[]; states: StreamState[]; waits: number[]; problem: unknown }>((resolve) => {
    follow({
      url: "/x",
      last,
      onBlock: (b) => blocks.push(b),
      onState: (s) => states.push(s),
      onEnd: (problem) => resolve({ ids, blocks, states, waits, problem }),
      wait: async (ms) => void waits.push(ms),
      fetch: (async (_: string, init: RequestInit) => {
        ids.push((init.headers as Record<string, string>)["Last-Event-ID"]);
        const next = responses.shift() ?? body("", 204);
        if (next instanceof Error) throw next;
        return next;
      }) as typeof fetch,
    });
  });
}

test("a lost connection goes on after the last event", async () => {
  const got = await followed([
    body("id: 1\nevent: step\ndata: a\n\nid: 2\nevent: step\ndata: b\n\nid: 3\nevent: step\ndata: cut"),
    new TypeError("refused"),
    body("", 503),
    body("id: 3\nevent: step\ndata: c\n\n"),
  ]);
  expect(got.blocks.map((b) => b.data)).toEqual(["a", "b", "c"]);
  expect(got.ids).toEqual([undefined, "2", "2", "2", "3"]);
  expect(got.states).toEqual(["connecting", "live", "lost", "live", "lost"]);
  expect(got.waits).toEqual([1000, 2000, 4000, 1000]);
  expect(got.problem).toBe(null);
});

test("an error that does not pass ends it", async () => {
  const gone = new Response(JSON.stringify({ type: "urn:perdure:problem:erased", title: "erased", detail: "gone" }), { status: 410 });
  const got = await followed([gone], "7");
  expect(got.ids).toEqual(["7"]);
  expect(got.problem).toMatchObject({ type: "erased", status: 410 });
});
