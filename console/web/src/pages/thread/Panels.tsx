import { useQuery } from "@tanstack/react-query";
import { Brain, CircleCheck, Circle, File as FileIcon, Folder, ListTodo, Loader } from "lucide-react";
import { useState } from "react";
import { api, type Schemas } from "@/api/client";
import { keys, useFiles, useThreadState } from "@/api/queries";
import { quoted } from "@/lib/commands";
import { cx } from "@/lib/cx";
import { own } from "@/lib/own";
import { bytes } from "@/lib/text";
import { Copy } from "@/ui/Copy";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Json } from "@/ui/Json";
import { Markdown } from "@/ui/Markdown";
import { Line, Text } from "@/ui/Text";
import { Time } from "@/ui/Time";

const todoLooks: Record<string, { icon: typeof Circle; tone: string; word: string }> = {
  completed: { icon: CircleCheck, tone: "text-done", word: "done" },
  in_progress: { icon: Loader, tone: "text-work", word: "in progress" },
};

export function Todos({ todos }: { todos: Schemas["Todo"][] }) {
  if (!todos.length)
    return (
      <Empty icon={<ListTodo aria-hidden />} title="No list of things to do">
        Agents with the tool write_todos keep one here.
      </Empty>
    );
  return (
    <ul className="mx-auto max-w-3xl space-y-1 p-4">
      {todos.map((todo, at) => {
        const look = own(todoLooks, todo.status) ?? { icon: Circle, tone: "text-faint", word: (todo.status ?? "open").replaceAll("_", " ") };
        return (
          <li key={todo.id ?? at} className="flex items-start gap-2 rounded border border-line bg-panel px-3 py-2">
            <look.icon aria-hidden className={cx("mt-0.5 size-4 shrink-0", look.tone)} />
            <Text text={todo.content ?? ""} className={cx("flex-1", todo.status === "completed" && "text-soft")} />
            <span className={cx("shrink-0 text-xs leading-5", look.tone)}>{look.word}</span>
          </li>
        );
      })}
    </ul>
  );
}

export function Files({ thread }: { thread: string }) {
  const files = useFiles(thread);
  const [path, setPath] = useState<string>();
  const list = (files.data?.files ?? []).filter((file) => !file.dir);
  const chosen = path ?? list[0]?.path;
  if (files.error) return <Failed error={files.error} again={() => void files.refetch()} />;
  if (files.isPending) return <Loading what="the files" />;
  if (!list.length)
    return (
      <Empty icon={<Folder aria-hidden />} title="No files">
        Files that an agent writes into its state appear here.
      </Empty>
    );
  return (
    <div className="flex h-full min-h-0 flex-col md:flex-row">
      <ul aria-label="Files" className="max-h-40 shrink-0 overflow-y-auto border-b border-line p-2 md:max-h-none md:w-64 md:border-r md:border-b-0">
        {list.map((file) => (
          <li key={file.path}>
            <button
              type="button"
              aria-current={file.path === chosen}
              onClick={() => setPath(file.path)}
              className={cx("flex h-8 w-full items-center gap-2 rounded px-2 text-left", file.path === chosen ? "bg-selected" : "hover:bg-hover")}
            >
              <FileIcon aria-hidden className="size-4 shrink-0 text-faint" />
              <Line text={file.path ?? ""} className="flex-1" />
              <span className="shrink-0 text-xs text-faint tabular-nums">{bytes(file.size ?? 0)}</span>
            </button>
          </li>
        ))}
      </ul>
      {chosen && <OneFile thread={thread} path={chosen} />}
    </div>
  );
}

function OneFile({ thread, path }: { thread: string; path: string }) {
  const file = useQuery({
    queryKey: [...keys.files(thread), path],
    queryFn: () => api.get("/v1/threads/{thread}/files", { path: { thread }, query: { path } }),
  });
  const text = file.data?.files?.[0]?.text;
  return (
    <div className="min-h-0 min-w-0 flex-1 overflow-y-auto">
      <div className="flex items-center gap-2 border-b border-line px-4 py-1">
        <Line text={path} className="flex-1 font-mono text-xs" />
        {text !== undefined && <Copy text={text} what="Copy the file" />}
      </div>
      <div className="p-4">
        {file.error && <Failed error={file.error} />}
        {text !== undefined && (/\.md$/i.test(path) ? <Markdown text={text} /> : <Text mono text={text} limit={50_000} />)}
      </div>
    </div>
  );
}

export function StateView({ thread }: { thread: string }) {
  const state = useThreadState(thread);
  if (state.error) return <Failed error={state.error} again={() => void state.refetch()} />;
  if (state.isPending) return <Loading what="the state" />;
  const { state: values, facts, deps } = state.data;
  const parts = [
    ["State", values],
    ["Facts", facts],
    ["Dependencies", deps],
  ].filter((part): part is [string, Record<string, unknown>] => !!part[1] && Object.keys(part[1]).length > 0);
  if (!parts.length) return <Empty title="No state">What steps keep with State.Set appears here.</Empty>;
  return (
    <div className="space-y-4 p-4">
      {parts.map(([title, value]) => (
        <section key={title}>
          <div className="flex items-center gap-2">
            <h2 className="text-sm">{title}</h2>
            <Copy text={() => JSON.stringify(value, null, 2)} what="Copy as JSON" />
          </div>
          <Json value={value} open={2} className="rounded border border-line bg-panel p-2" />
        </section>
      ))}
    </div>
  );
}

/** What is remembered about the owner of the thread. */
export function Memory({ user }: { user?: string }) {
  const memory = useQuery({
    queryKey: keys.memory(user ?? ""),
    queryFn: () => api.get("/v1/memory", { query: { ns: user ? ["user", user] : undefined, limit: 200 } }),
  });
  if (memory.error) return <Failed error={memory.error} again={() => void memory.refetch()} />;
  if (memory.isPending) return <Loading what="the memory" />;
  const items = memory.data.items ?? [];
  if (!items.length)
    return (
      <Empty icon={<Brain aria-hidden />} title="Nothing is remembered" command={`perdure memory put ${quoted(`${user ? `user/${user}` : "app"}/KEY`)} VALUE`}>
        Agents keep here what they know beyond this thread{user ? ` about ${user}` : ""}.
      </Empty>
    );
  return (
    <ul className="space-y-2 p-4">
      {items.map((item) => (
        <li key={item.cursor} className="rounded border border-line bg-panel px-3 py-2">
          <div className="flex items-baseline gap-2">
            <Line text={[...item.namespace, item.key].join("/")} className="flex-1 font-mono text-xs" />
            <Time at={item.updated} className="text-xs text-faint" />
          </div>
          {typeof item.value === "string" ? <Text text={item.value} /> : <Json value={item.value} open={2} />}
        </li>
      ))}
    </ul>
  );
}
