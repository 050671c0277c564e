import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { Problem } from "@/api/client";
import { useThread, useThreadState } from "@/api/queries";
import { useHotkeys } from "@/app/hotkeys";
import { heard as heardIn } from "@/chat/said";
import { ended } from "@/lib/status";
import { oneLine } from "@/lib/text";
import { serverNow } from "@/lib/time";
import { rowsOf, signalsAwaited, type Span, timelineOf } from "@/lib/timeline";
import { Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { SidePanel } from "@/ui/SidePanel";
import { type Tab, TabPanel, Tabs } from "@/ui/Tabs";
import { useNow } from "@/ui/Time";
import { useNarrow } from "@/ui/useNarrow";
import { Archived } from "./Archived";
import { Conversation } from "./Conversation";
import { Events } from "./Events";
import { Family } from "./Family";
import { Header } from "./Header";
import { Inspector } from "./Inspector";
import { useThreadLog } from "./log";
import { Files, Memory, StateView, Todos } from "./Panels";
import { Problems } from "./Problems";
import { Timeline } from "./Timeline";

interface Place {
  tab?: string;
  run?: string;
  seq?: string;
}

const nothing: ReadonlySet<string> = new Set();

export default function Thread() {
  const { thread: id } = useParams({ from: "/shell/threads/$thread" });
  const [lives, setLives] = useState(0); // a thread that came back is read anew
  return <OneThread key={`${id} ${lives}`} id={id} onRestored={() => setLives(lives + 1)} />;
}

function OneThread({ id, onRestored }: { id: string; onRestored(): void }) {
  const place = useSearch({ strict: false }) as Place;
  const navigate = useNavigate();
  const log = useThreadLog(id);
  const thread = useThread(id);
  const state = useThreadState(id);
  const narrow = useNarrow();
  const go = useCallback(
    (change: Place) => void navigate({ to: "/threads/$thread", params: { thread: id }, search: { ...place, ...change } as Record<string, string>, replace: true }),
    [navigate, id, place],
  );
  const select = useCallback((seq: number) => go({ seq: String(seq) }), [go]);
  const close = useCallback(() => go({ seq: undefined }), [go]);
  useHotkeys({ Escape: close });

  const runs = thread.data?.runs ?? [];
  const run = runs.find((one) => one.id === place.run) ?? runs.at(-1);
  const times = useTimes(log, run?.id ?? "", !run || ended(run.status) || run.status === "suspended" || run.status === "paused");
  const heard = useMemo(() => heardIn(log.events), [log.events]);
  const turns = heard.filter((one) => one.message.role !== "tool").length;
  const seq = place.seq ? Number(place.seq) : undefined;
  const span = useMemo(() => {
    const find = (s: Span) => seq !== undefined && s.seqs.includes(seq);
    return rowsOf(times.roots, nothing).find(find);
  }, [times, seq]);
  const awaited = useMemo(() => (run?.status === "suspended" ? signalsAwaited(log.events, run.id) : []), [log.events, run?.id, run?.status]);
  useEffect(() => {
    document.title = `${oneLine(thread.data?.title || id, 200)} – Perdure`;
  }, [thread.data?.title, id]);

  const gone = thread.error ?? log.problem;
  if (gone instanceof Problem && gone.type === "archived") return <Archived thread={id} problem={gone} onRestored={onRestored} />;
  if (thread.error && !thread.data)
    return (
      <Page title={id}>
        <Failed error={thread.error} again={() => void thread.refetch()} />
        <Link to="/threads" className="mx-4 w-fit text-accent hover:underline">
          All threads
        </Link>
      </Page>
    );
  if (!thread.data) return <Loading what="the thread" />;
  const todos = state.data?.todos ?? [];
  const errors = log.events.filter((e) => e.run === run?.id && e.error && ["step", "attempt", "ended", "blocked", "quarantined"].includes(e.kind)).length + times.takeovers.length;
  const tabs: Tab[] = [
    { id: "timeline", label: "Timeline" },
    ...(turns || log.live.length ? [{ id: "conversation", label: "Conversation", count: turns }] : []),
    ...(todos.length ? [{ id: "todos", label: "To do", count: todos.length }] : []),
    { id: "files", label: "Files" },
    { id: "state", label: "State" },
    { id: "memory", label: "Memory" },
    { id: "problems", label: "Problems", count: errors },
    { id: "family", label: "Family" },
    { id: "events", label: "Events", count: log.events.length },
  ];
  const tab = tabs.some((t) => t.id === place.tab) ? place.tab! : "timeline";
  const inspector = seq !== undefined && <Inspector thread={id} events={log.events} span={span} seq={seq} onClose={close} />;
  return (
    <>
      <Header thread={thread.data} run={run} awaited={awaited} onRun={(next) => go({ run: next, seq: undefined })} />
      {log.problem && <Failed error={log.problem} />}
      <div className="flex min-h-0 flex-1">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col bg-panel">
          <Tabs label="Views" tabs={tabs} value={tab} onChange={(next) => go({ tab: next === "timeline" ? undefined : next })}>
            <TabPanel id="timeline" className="flex min-h-0 flex-1 flex-col">
              {log.begun ? <Timeline times={times} selected={seq} onSelect={select} /> : <Loading what="the events" />}
            </TabPanel>
            <TabPanel id="conversation" className="flex min-h-0 flex-1 flex-col bg-page">
              <Conversation thread={id} heard={heard} live={log.live} asks={runs.flatMap((one) => one.asks ?? [])} over={runs.every((one) => ended(one.status))} onSelect={select} />
            </TabPanel>
            <TabPanel id="todos">
              <Todos todos={todos} />
            </TabPanel>
            <TabPanel id="files">
              <Files thread={id} />
            </TabPanel>
            <TabPanel id="state">
              <StateView thread={id} />
            </TabPanel>
            <TabPanel id="memory">
              <Memory user={thread.data.user} />
            </TabPanel>
            <TabPanel id="problems" className="min-h-0 flex-1 overflow-y-auto bg-page">
              <Problems thread={id} run={run?.id ?? ""} onSelect={select} />
            </TabPanel>
            <TabPanel id="family">
              <Family thread={id} />
            </TabPanel>
            <TabPanel id="events" className="flex min-h-0 flex-1 flex-col">
              <Events thread={id} events={log.events} selected={seq} onSelect={select} />
            </TabPanel>
          </Tabs>
        </div>
        {inspector && (narrow ? <div className="fixed inset-0 z-30 bg-panel">{inspector}</div> : <SidePanel name="inspector">{inspector}</SidePanel>)}
      </div>
    </>
  );
}

/** The timeline of a run, which grows every second while it goes on. */
function useTimes(log: ReturnType<typeof useThreadLog>, run: string, still: boolean) {
  const now = useNow();
  const paths = log.live.map((step) => step.path).join("\n");
  const clock = still ? 0 : now;
  return useMemo(() => timelineOf(log.events, run, serverNow(), paths ? paths.split("\n") : []), [log.events, run, paths, clock]);
}
