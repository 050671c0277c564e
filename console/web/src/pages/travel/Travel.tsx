import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { ChevronRight, GitFork, History, Undo2 } from "lucide-react";
import { type ReactNode, useDeferredValue, useEffect, useMemo, useState } from "react";
import { useCan, useThread } from "@/api/queries";
import { useHotkeys } from "@/app/hotkeys";
import { marksOf } from "@/lib/journal";
import { count, oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { TabPanel, Tabs } from "@/ui/Tabs";
import { Branches } from "./Branches";
import { Changes } from "./Changes";
import { Entries } from "./Entries";
import { ForkDialog } from "./Fork";
import { type Sides, useJournal } from "./queries";
import { RewindDialog } from "./Rewind";
import { Scrubber } from "./Scrubber";
import { Conversation, EventView, FilesView, StateView } from "./views";

const number = (text: string | undefined) => (text && /^\d+$/.test(text) ? Number(text) : undefined);

/** A value once it has rested for a moment, so that a thumb that is dragged asks for little. */
function useRested<T>(value: T, ms = 120): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return rested;
}

/** A thread at any point of its past, and the difference of two points. */
export default function Travel() {
  const { thread } = useParams({ from: "/shell/threads/$thread/travel" });
  const search = useSearch({ from: "/shell/threads/$thread/travel" }) as { at?: string; and?: string; with?: string; tab?: string };
  const navigate = useNavigate();
  const info = useThread(thread);
  const journal = useJournal(thread);
  const other = search.with && search.with !== thread ? search.with : undefined;
  const otherJournal = useJournal(other ?? thread);
  const mayRun = useCan("run");
  const [dialog, setDialog] = useState<"fork" | "rewind">();

  const entries = useMemo(() => journal.data ?? [], [journal.data]);
  const marks = useMemo(() => marksOf(entries), [entries]);
  const last = entries.at(-1)?.seq ?? 0;
  const inside = (seq: number | undefined, end: number) => (seq === undefined ? undefined : Math.min(Math.max(seq, 1), Math.max(end, 1)));
  const at = last === 0 ? 0 : (inside(number(search.at), last) ?? last);
  const otherLast = otherJournal.data?.at(-1)?.seq ?? 0;
  const and = other ? (inside(number(search.and), otherLast) ?? otherLast) : inside(number(search.and), last);
  const comparing = and !== undefined && and > 0;
  const tab = search.tab && (search.tab !== "changes" || comparing) ? search.tab : "conversation";

  const go = (next: { at?: number; and?: number; with?: string; tab?: string }) =>
    void navigate({
      to: "/threads/$thread/travel",
      params: { thread },
      search: {
        at: next.at === undefined ? search.at : String(next.at),
        and: "and" in next ? next.and?.toString() : search.and,
        with: "with" in next ? next.with : search.with,
        tab: "tab" in next ? next.tab : search.tab,
      },
      replace: true,
    });
  const move = (to: number) => go({ at: Math.min(Math.max(to, 1), last) });
  const mark = (step: 1 | -1) => {
    const next = step > 0 ? marks.find((m) => m.seq > at) : marks.findLast((m) => m.seq < at);
    if (next) move(next.seq);
  };
  useHotkeys({
    j: () => move(at + 1),
    k: () => move(at - 1),
    ArrowRight: () => move(at + 1),
    ArrowLeft: () => move(at - 1),
    J: () => mark(1),
    K: () => mark(-1),
    Home: () => move(1),
    End: () => move(last),
    f: () => mayRun && setDialog("fork"),
  });

  const shown = useRested(useDeferredValue(at));
  const shownAnd = useRested(useDeferredValue(and));
  const sides: Sides | undefined = shownAnd === undefined ? undefined : { thread, at: shown, with: other ?? thread, and: shownAnd };
  const title = info.data?.title || thread;
  const tabs = [
    { id: "conversation", label: "Conversation" },
    { id: "state", label: "State" },
    { id: "files", label: "Files" },
    { id: "event", label: "Event" },
    ...(comparing ? [{ id: "changes", label: "Changes from A to B" }] : []),
    { id: "branches", label: "Branches" },
  ];
  const both = (view: (point: { thread: string; at: number; life?: string }) => ReactNode) => {
    const left = view({ thread, at: shown, life: entries[0]?.life });
    if (!sides || !comparing) return left;
    const right = view({ thread: sides.with, at: sides.and, life: (other ? otherJournal.data : entries)?.[0]?.life });
    return (
      <div className="grid min-h-full grid-cols-[minmax(0,1fr)] divide-line max-lg:divide-y lg:grid-cols-2 lg:divide-x">
        <Side name="A" thread={other ? thread : undefined} seq={shown}>
          {left}
        </Side>
        <Side name="B" thread={other} seq={sides.and}>
          {right}
        </Side>
      </div>
    );
  };

  return (
    <Page
      title={`Time travel: ${title}`}
      heading={
        <h1 className="flex min-w-0 items-center gap-1.5 text-lg">
          <History aria-hidden className="size-4 shrink-0 text-faint" />
          <Link to="/threads/$thread" params={{ thread }} className="truncate hover:underline">
            <bdi>{oneLine(title, 120)}</bdi>
          </Link>
          <ChevronRight aria-hidden className="size-4 shrink-0 text-faint" />
          <span className="shrink-0">Time travel</span>
        </h1>
      }
      actions={
        mayRun &&
        last > 0 && (
          <>
            <Button icon={<Undo2 aria-hidden />} disabled={at >= last} onClick={() => setDialog("rewind")}>
              <span>
                Rewind<span className="max-sm:sr-only"> to here</span>
              </span>
            </Button>
            <Button look="main" icon={<GitFork aria-hidden />} title="Fork here (f)" onClick={() => setDialog("fork")}>
              <span>
                Fork<span className="max-sm:sr-only"> here</span>
              </span>
            </Button>
          </>
        )
      }
    >
      {journal.error && <Failed error={journal.error} again={() => void journal.refetch()} />}
      {journal.isPending && <Loading what="the journal" />}
      {last > 0 && (
        <>
          <Scrubber
            entries={entries}
            marks={marks}
            at={at}
            and={other ? undefined : and}
            onMove={(to, end) => go(end === undefined ? { at: to } : { at: to, and: end })}
            onCompare={other ? undefined : () => (comparing ? go({ and: undefined, tab: undefined }) : go({ at: at === last ? Math.max(1, last - 1) : at, and: last, tab: "changes" }))}
          />
          {other && (
            <OtherThread thread={other} onStop={() => go({ with: undefined, and: undefined, tab: undefined })}>
              {otherJournal.data && and ? (
                <Scrubber entries={otherJournal.data} marks={marksOf(otherJournal.data)} at={and} onMove={(to) => go({ and: to })} />
              ) : otherJournal.error ? (
                <Failed error={otherJournal.error} />
              ) : (
                <Loading what="the other journal" />
              )}
            </OtherThread>
          )}
          <div className="grid min-h-0 flex-1 grid-cols-[minmax(0,1fr)] lg:grid-cols-[20rem_minmax(0,1fr)]">
            <aside aria-label="Events of the journal" className="min-h-0 border-line bg-panel max-lg:hidden lg:border-r">
              <Entries entries={entries} marks={marks} at={at} and={other ? undefined : and} onMove={move} />
            </aside>
            <div className="flex min-h-0 flex-col">
              <Tabs label="What to show" tabs={tabs} value={tab} onChange={(id) => go({ tab: id })}>
                <TabPanel id="conversation">{both((point) => <Conversation {...point} />)}</TabPanel>
                <TabPanel id="state">{both((point) => <StateView {...point} />)}</TabPanel>
                <TabPanel id="files">{both((point) => <FilesView {...point} />)}</TabPanel>
                <TabPanel id="event">{both((point) => <EventView {...point} />)}</TabPanel>
                <TabPanel id="changes">{sides && <Changes sides={sides} />}</TabPanel>
                <TabPanel id="branches">
                  <Branches thread={thread} with={other} onCompare={(id) => go({ with: id, and: undefined, tab: "changes" })} />
                </TabPanel>
              </Tabs>
            </div>
          </div>
        </>
      )}
      {dialog === "fork" && <ForkDialog thread={thread} at={at} entries={entries} onClose={() => setDialog(undefined)} />}
      {dialog === "rewind" && (
        <RewindDialog thread={thread} at={at} entries={entries} onClose={() => setDialog(undefined)} onFork={() => setDialog("fork")} onMove={(to) => go({ at: to })} />
      )}
    </Page>
  );
}

const Side = ({ name, thread, seq, children }: { name: string; thread?: string; seq: number; children: ReactNode }) => (
  <section aria-label={`Point ${name}`} className="min-w-0">
    <h2 className="sticky top-0 z-10 flex items-center gap-2 border-b border-line bg-panel px-4 py-1.5 text-xs">
      <span className="flex size-4.5 items-center justify-center rounded-full border border-accent font-semibold text-accent">{name}</span>
      {thread && <bdi className="truncate">{oneLine(thread, 80)}</bdi>}
      <span className="font-normal text-faint">at {count(seq)}</span>
    </h2>
    {children}
  </section>
);

const OtherThread = ({ thread, onStop, children }: { thread: string; onStop(): void; children: ReactNode }) => (
  <section aria-label="The thread to compare with">
    <div className="flex items-center gap-2 bg-sunken px-4 py-1 text-xs">
      <span className="text-soft">compared with</span>
      <Link to="/threads/$thread/travel" params={{ thread }} search={{}} className="truncate font-medium text-accent hover:underline">
        <bdi>{oneLine(thread, 80)}</bdi>
      </Link>
      <Button look="quiet" size="small" className="ml-auto" onClick={onStop}>
        Stop comparing
      </Button>
    </div>
    {children}
  </section>
);
