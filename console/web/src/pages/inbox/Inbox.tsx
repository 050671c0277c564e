import { useNavigate, useSearch } from "@tanstack/react-router";
import { Inbox as Icon } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { type AskOrder, useAskingThreads, useAsks } from "@/api/queries";
import { useHotkeys } from "@/app/hotkeys";
import { AskView } from "@/asks/AskView";
import { type Ask, byThread } from "@/lib/ask";
import { Button } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Kbd } from "@/ui/Kbd";
import { Page } from "@/ui/Page";
import { AskList } from "./AskList";
import { Several } from "./Several";

const wide = matchMedia("(min-width: 64rem)");

/** All that waits for a person, over all threads. */
export default function Inbox() {
  const search = useSearch({ strict: false }) as { order?: AskOrder; mine?: string; ask?: string };
  const navigate = useNavigate();
  const order: AskOrder = search.order === "expires" ? "expires" : "opened";
  const asks = useAsks(order, search.mine === "true");
  const threads = useAskingThreads();
  const groups = byThread(asks.data?.asks ?? []);
  const open = groups.flat();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const current = search.ask ?? (wide.matches ? open[0]?.id : undefined);
  const at = open.findIndex((ask) => ask.id === current);
  const last = useRef(0); // where the current ask was, for when it is gone
  if (at >= 0) last.current = at;
  const several = open.filter((ask) => chosen.has(ask.id));

  const set = (more: Record<string, string | undefined>) => void navigate({ to: "/inbox", search: { ...search, ...more }, replace: true });
  const choose = (ask: Ask | undefined) => ask && set({ ask: ask.id });
  const step = (by: number) => choose(open[Math.max(0, Math.min(at < 0 ? last.current : at + by, open.length - 1))]);
  const show = (id: string | undefined) => id && void navigate({ to: "/asks/$ask", params: { ask: id } });
  const toggle = (id: string | undefined) => {
    if (!id) return;
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  useHotkeys({
    j: () => step(1),
    ArrowDown: () => step(1),
    k: () => step(-1),
    ArrowUp: () => step(-1),
    x: () => toggle(current),
    Enter: () => show(current),
    ...(chosen.size ? { Escape: () => setChosen(new Set()) } : {}),
  });
  useEffect(() => {
    document.getElementById(`row ${current}`)?.scrollIntoView({ block: "nearest" });
  }, [current]);
  /** After an answer the next ask comes up, which has moved to the same place. */
  const answered = () => choose(open[at + 1] ?? open[at - 1]);

  return (
    <Page
      title="Inbox"
      actions={
        <>
          <label className="flex items-center gap-1.5 text-soft">
            <input type="checkbox" className="size-4 accent-accent-fill" checked={search.mine === "true"} onChange={(e) => set({ mine: e.target.checked ? "true" : undefined })} />
            For me
          </label>
          <div role="group" aria-label="Order" className="flex rounded border border-line">
            {(["opened", "expires"] as const).map((one) => (
              <Button key={one} size="small" look={order === one ? "plain" : "quiet"} className="!border-0" aria-pressed={order === one} onClick={() => set({ order: one === "opened" ? undefined : one })}>
                {one === "opened" ? "Oldest" : "Expires first"}
              </Button>
            ))}
          </div>
        </>
      }
    >
      {asks.error && <Failed error={asks.error} again={() => void asks.refetch()} />}
      {asks.isPending && <Loading what="what waits for a person" />}
      {asks.data?.damage?.map((text) => <Failed key={text} error={new Error(text)} />)}
      {asks.data && open.length === 0 && !search.ask && (
        <Empty icon={<Icon aria-hidden />} title={search.mine === "true" ? "Nothing waits for you" : "Nothing waits for a person"} command={"printf 'Supplier: S-204\\nItem: 40 chairs\\nTotal: 4800 EUR\\n' | perdure run procurement -"}>
          Questions and approvals of all threads appear here at once. This command starts a flow that asks.
        </Empty>
      )}
      {asks.data && (open.length > 0 || search.ask) && (
        <div className="flex min-h-0 flex-1">
          <div className="flex min-h-0 w-full shrink-0 flex-col border-line lg:w-96 lg:border-r xl:w-md">
            <div className="min-h-0 flex-1 overflow-y-auto">
              {open.length === 0 && <Empty title="Nothing else waits for a person" />}
              <AskList groups={groups} threads={threads.data?.threads ?? []} current={current} chosen={chosen} onChoose={(ask) => (wide.matches ? choose(ask) : show(ask.id))} onToggle={toggle} onToggleAll={setChosen} />
              {asks.data.next && <p className="px-4 py-3 text-soft">There are more than these. They move up as these are answered.</p>}
            </div>
            {several.length > 0 ? (
              <Several asks={several} onDone={() => setChosen(new Set())} />
            ) : (
              <p className="hidden items-center gap-2 border-t border-line px-4 py-2 text-xs whitespace-nowrap text-faint lg:flex">
                <Kbd>j</Kbd>
                <Kbd>k</Kbd> move <Kbd>a</Kbd> approve <Kbd>e</Kbd> edit <Kbd>r</Kbd> reject <Kbd>x</Kbd> select
              </p>
            )}
          </div>
          <div className="hidden min-w-0 flex-1 overflow-y-auto lg:block">
            {current && <AskView key={current} id={current} known={open.find((ask) => ask.id === current)} keys={several.length === 0} onDone={answered} />}
          </div>
        </div>
      )}
    </Page>
  );
}
