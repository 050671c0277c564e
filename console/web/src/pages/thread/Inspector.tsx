import { Link } from "@tanstack/react-router";
import { History, X } from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { cliOf, curlOf } from "@/lib/commands";
import { idOf } from "@/lib/journal";
import { clock, duration, exact, serverNow } from "@/lib/time";
import type { Event, Span } from "@/lib/timeline";
import { Button, buttonClass } from "@/ui/Button";
import { Copy } from "@/ui/Copy";
import { Json } from "@/ui/Json";
import { MediaView, mediaIn } from "@/ui/Media";
import { Badge } from "@/ui/Status";
import { Line, Text } from "@/ui/Text";

interface Props {
  thread: string;
  events: Event[];
  span?: Span;
  seq: number;
  onClose(): void;
}

/** Everything about one step, or one event that belongs to none. */
export function Inspector({ thread, events, span, seq, onClose }: Props) {
  const mine = useMemo(() => {
    const seqs = new Set(span?.seqs ?? [seq]);
    return events.filter((e) => seqs.has(e.seq));
  }, [events, span, seq]);
  const first = mine[0];
  if (!first) return null;
  return (
    <aside aria-label="Inspector" className="flex h-full min-h-0 flex-col bg-panel">
      <header className="flex min-h-9 shrink-0 items-center gap-2 border-b border-line pr-1 pl-4">
        <h2 className="min-w-0 flex-1 truncate font-mono text-xs">
          <Line text={span?.path ?? first.path ?? first.kind} />
        </h2>
        <Button look="quiet" size="small" icon={<X aria-hidden />} aria-label="Close the inspector" title="Close (Esc)" onClick={onClose} />
      </header>
      <div className="min-h-0 flex-1 overflow-y-auto">
        {span && <Facts span={span} />}
        {mine.map((event) => (
          <OneEvent key={event.seq} thread={thread} event={event} />
        ))}
      </div>
    </aside>
  );
}

const Fact = ({ label, children }: { label: string; children: ReactNode }) => (
  <div className="contents">
    <dt className="text-faint">{label}</dt>
    <dd className="min-w-0">{children}</dd>
  </div>
);

function Facts({ span }: { span: Span }) {
  const ran = span.segments.filter((s) => s.look === "run" || s.look === "failed").reduce((sum, s) => sum + s.to - s.from, 0);
  return (
    <dl className="grid grid-cols-[6rem_1fr] gap-x-3 gap-y-1 border-b border-line px-4 py-3">
      <Fact label="Began">{exact(span.from)}</Fact>
      <Fact label="Took">{span.to === undefined ? "goes on" : duration(span.to - span.from)}</Fact>
      {ran > 0 && span.segments.length > 1 && <Fact label="Of this, ran">{duration(ran)}</Fact>}
      {span.attempts > 1 && <Fact label="Attempts">{span.attempts}</Fact>}
      {span.worker && (
        <Fact label="Worker">
          <span className="font-mono text-xs">{span.worker}</span>
        </Fact>
      )}
      {span.replayed && <Fact label="Replayed">It ran once. Later passes took its result from the journal.</Fact>}
      {span.child && (
        <Fact label="Child">
          <Link to="/threads/$thread" params={{ thread: span.child }} className="font-mono text-xs text-accent hover:underline">
            {span.child}
          </Link>
        </Fact>
      )}
      {span.ask && (
        <Fact label="Ask">
          <Link to="/asks/$ask" params={{ ask: span.ask }} className="font-mono text-xs text-accent hover:underline">
            {span.ask}
          </Link>
        </Fact>
      )}
    </dl>
  );
}

const told = new Set(["thread", "seq", "kind", "time", "run", "path", "value", "error", "took_us"]);

function OneEvent({ thread, event }: { thread: string; event: Event }) {
  const rest = Object.entries(event).filter(([name]) => !told.has(name));
  const media = useMemo(() => mediaIn(event.value), [event]);
  const before = idOf(event.seq - 1, event.life);
  return (
    <section className="space-y-2 border-b border-line px-4 py-3">
      <div className="flex items-center gap-2">
        <Badge tone={event.error ? "bad" : "idle"}>{event.kind}</Badge>
        <span className="text-xs text-faint tabular-nums">
          #{event.seq} at {clock(Date.parse(event.time), serverNow())}
          {event.took_us !== undefined && `, ${duration(event.took_us / 1000)}`}
        </span>
        <span className="ml-auto flex">
          <Link to="/threads/$thread/travel" params={{ thread }} search={{ at: String(event.seq) }} className={buttonClass("quiet", "small", true)} aria-label="See the thread as it was here" title="See the thread as it was here">
            <History aria-hidden />
          </Link>
          <Copy text={() => JSON.stringify(event, null, 2)} what="Copy the event as JSON" />
          <Copy text={() => curlOf("GET", `/v1/threads/${encodeURIComponent(thread)}/events?after=${before}&limit=1`)} label="curl" what="Copy as a curl command" />
          <Copy text={() => cliOf(["events", "--after", before, "--limit", "1"], thread)} label="CLI" what="Copy as a command line" />
        </span>
      </div>
      {event.error && <Text mono text={event.error} className="rounded bg-bad-tint p-2 text-bad" />}
      {rest.length > 0 && <Json value={Object.fromEntries(rest)} open={1} />}
      {event.value !== undefined &&
        (typeof event.value === "string" ? <Text mono text={event.value} limit={2000} className="rounded bg-sunken p-2" /> : <Json value={event.value} open={7} className="rounded bg-sunken p-2" />)}
      {media.map((one) => (
        <MediaView key={one.blob} thread={thread} media={one} />
      ))}
    </section>
  );
}
