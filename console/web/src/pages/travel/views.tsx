import { FileText, MessageSquare } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Conversation as Messages } from "@/chat/Conversation";
import { conversation } from "@/chat/said";
import { cx } from "@/lib/cx";
import { bytes, many, oneLine } from "@/lib/text";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Json } from "@/ui/Json";
import { Badge, Status } from "@/ui/Status";
import { Text } from "@/ui/Text";
import { useEventAt, useFileAt, useFilesAt, useMessagesAt, useStateAt } from "./queries";

interface Point {
  thread: string;
  at: number;
}

/** What a query has, or that it has nothing yet. */
function Read<T>({ query, what, children }: { query: { data: T | undefined; error: unknown; isPending: boolean; refetch(): unknown; isPlaceholderData: boolean }; what: string; children(data: T): ReactNode }) {
  if (query.error) return <Failed error={query.error} again={() => void query.refetch()} />;
  if (query.data === undefined) return query.isPending ? <Loading what={what} /> : null;
  return <div className={cx("space-y-3 p-4", query.isPlaceholderData && "opacity-60")}>{children(query.data)}</div>;
}

export function Conversation({ thread, at }: Point) {
  const messages = useMessagesAt(thread, at);
  return (
    <Read query={messages} what="the conversation">
      {(data) =>
        data.messages.length === 0 ? (
          <Empty icon={<MessageSquare aria-hidden />} title="No one has said anything yet">
            At this point the thread has no messages. Flows that are no agents never have any.
          </Empty>
        ) : (
          <Messages thread={thread} said={conversation(data.messages)} />
        )
      }
    </Read>
  );
}

const elsewhere = (key: string) => key === "agent.messages" || key === "agent.todos" || key.startsWith("agent.file:") || key.startsWith("agent.file-info:");

export function StateView({ thread, at }: Point) {
  const state = useStateAt(thread, at);
  return (
    <Read query={state} what="the state">
      {(data) => {
        const all = Object.entries((data.state ?? {}) as Record<string, unknown>);
        const own = Object.fromEntries(all.filter(([key]) => !elsewhere(key)));
        const hidden = all.length - Object.keys(own).length;
        const runs = data.thread.runs ?? [];
        return (
          <>
            <Part title="Runs">
              {runs.length === 0 && <p className="text-soft">There is no run yet.</p>}
              <ul className="space-y-1">
                {runs.map((run) => (
                  <li key={run.id} className="flex flex-wrap items-center gap-2">
                    <Status status={run.status} asks={run.asks?.length} />
                    <bdi className="font-medium">{run.flow}</bdi>
                    <span className="text-soft">{many(run.steps, "step")}</span>
                    {run.last && <bdi className="truncate font-mono text-xs text-faint">{oneLine(run.last, 120)}</bdi>}
                  </li>
                ))}
              </ul>
            </Part>
            {data.todos && data.todos.length > 0 && (
              <Part title="Todos">
                <ul className="space-y-1">
                  {data.todos.map((todo) => (
                    <li key={todo.id} className="flex items-start gap-2">
                      <Badge tone={todo.status === "completed" || todo.status === "done" ? "done" : todo.status === "in_progress" ? "work" : "idle"}>{todo.status.replace("_", " ") || "open"}</Badge>
                      <bdi>{oneLine(todo.content)}</bdi>
                    </li>
                  ))}
                </ul>
              </Part>
            )}
            <Part title="State" note={hidden > 0 ? `${many(hidden, "key")} with messages, files and todos ${hidden === 1 ? "is" : "are"} shown apart` : undefined}>
              {Object.keys(own).length > 0 ? <Json value={own} open={2} /> : <p className="text-soft">{hidden > 0 ? "Nothing else is in the state." : "The state is empty."}</p>}
            </Part>
            {data.facts && Object.keys(data.facts).length > 0 && (
              <Part title="Facts">
                <Json value={data.facts} open={1} />
              </Part>
            )}
            {data.deps && Object.keys(data.deps).length > 0 && (
              <Part title="Dependencies">
                <Json value={data.deps} open={1} />
              </Part>
            )}
          </>
        );
      }}
    </Read>
  );
}

const Part = ({ title, note, children }: { title: string; note?: string; children: ReactNode }) => (
  <section className="space-y-1.5">
    <h3 className="flex items-baseline gap-2 text-xs font-medium text-faint">
      {title}
      {note && <span className="font-normal">({note})</span>}
    </h3>
    {children}
  </section>
);

export function FilesView({ thread, at }: Point) {
  const files = useFilesAt(thread, at);
  const [chosen, setChosen] = useState<string>();
  const path = chosen && files.data?.files.some((file) => file.path === chosen) ? chosen : files.data?.files[0]?.path;
  const file = useFileAt(thread, at, path);
  return (
    <Read query={files} what="the files">
      {(data) =>
        data.files.length === 0 ? (
          <Empty icon={<FileText aria-hidden />} title="There are no files">
            Agents with the file tools keep their files in the state. At this point there are none.
          </Empty>
        ) : (
          <>
            <ul className="flex flex-wrap gap-1">
              {data.files.map((one) => (
                <li key={one.path}>
                  <button
                    type="button"
                    aria-pressed={one.path === path}
                    onClick={() => setChosen(one.path)}
                    className={cx("flex h-7 items-center gap-1.5 rounded px-2 font-mono text-xs", one.path === path ? "bg-selected" : "hover:bg-hover")}
                  >
                    <bdi>{oneLine(one.path, 120)}</bdi>
                    <span className="text-faint">{bytes(one.size)}</span>
                  </button>
                </li>
              ))}
            </ul>
            {file.error && <Failed error={file.error} />}
            {file.data && <Text text={file.data.files[0]?.text ?? ""} mono className="rounded border border-line bg-panel p-3" />}
          </>
        )
      }
    </Read>
  );
}

export function EventView({ thread, at, life }: Point & { life?: string }) {
  const event = useEventAt(thread, at, life);
  return <Read query={event} what="the event">{(data) => (data ? <Json value={data} open={3} /> : <p className="text-soft">There is no event {at}.</p>)}</Read>;
}
