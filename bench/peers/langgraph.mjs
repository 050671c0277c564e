// The peer on LangGraph: node langgraph.mjs graph|tasks JOB does a job of job.go and
// prints what it measured.
import { readFileSync } from "node:fs";
import { Annotation, Command, END, START, StateGraph, entrypoint, interrupt, task } from "@langchain/langgraph";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";

const [way, text] = process.argv.slice(2);
const job = JSON.parse(text);

let steps = 0, first = 0, last = 0;
function tick() {
  last = performance.now();
  if (++steps === 1) first = last;
}

function bytesWritten() {
  try {
    return Number(/^wchar: (\d+)$/m.exec(readFileSync("/proc/self/io", "latin1"))[1]);
  } catch {
    return 0;
  }
}

// graph is one node in a loop; left counts the steps to do, then it may wait.
function graph(checkpointer) {
  const State = Annotation.Root({
    left: Annotation(),
    wait: Annotation(),
    results: Annotation({ reducer: (all, more) => all.concat(more), default: () => [] }),
  });
  const compiled = new StateGraph(State)
    .addNode("step", (s) => {
      tick();
      return { left: s.left - 1, results: [job.result] };
    })
    .addNode("pause", () => {
      interrupt("go");
      return { left: 1, wait: false };
    })
    .addEdge(START, "step")
    .addConditionalEdges("step", (s) => (s.left > 0 ? "step" : s.wait ? "pause" : END))
    .addEdge("pause", "step")
    .compile({ checkpointer });
  return (id, input) => compiled.invoke(input, config(id));
}

// tasks is a function that awaits one task after the other.
function tasks(checkpointer) {
  const step = task("step", async () => {
    tick();
    return job.result;
  });
  const flow = entrypoint({ name: "steps", checkpointer }, async ({ left, wait }) => {
    for (let i = 0; i < left; i++) await step(i);
    if (wait) {
      interrupt("go");
      await step(left);
    }
    return left;
  });
  return (id, input) => flow.invoke(input, config(id));
}

const config = (id) => ({ configurable: { thread_id: id }, durability: "sync", recursionLimit: 1_000_000 });

const began = performance.now();
const saver = SqliteSaver.fromConnString(job.dir + "/langgraph.db");
saver.setup(); // switches to WAL, where the package's default is NORMAL
saver.db.pragma("synchronous = FULL");
const invoke = { graph, tasks }[way](saver);

const m = { runs: 0, seconds: 0, steps: 0, span: 0, bytes: 0, setting: "" };
switch (job.do) {
  case "suspend":
    await invoke("long", { left: job.steps, wait: true });
    break;
  case "wake":
    await invoke("long", new Command({ resume: true }));
    m.seconds = (last - began) / 1000;
    m.steps = steps;
    break;
  case "runs": {
    if (job.warm) await invoke("warm", { left: job.warm, wait: false });
    steps = 0;
    const before = bytesWritten();
    const start = performance.now();
    let next = 0;
    const client = async () => {
      while (next < job.runs && performance.now() - start < job.millis) {
        await invoke("run-" + ++next, { left: job.steps, wait: false });
        m.runs++;
      }
    };
    await Promise.all(Array.from({ length: job.clients }, client));
    m.seconds = (performance.now() - start) / 1000;
    m.bytes = bytesWritten() - before;
    m.steps = steps;
    m.span = (last - first) / 1000;
    m.setting = `journal_mode=${saver.db.pragma("journal_mode", { simple: true })} synchronous=${saver.db.pragma("synchronous", { simple: true })}`;
    break;
  }
}
console.log(JSON.stringify(m));
process.exit(0);
