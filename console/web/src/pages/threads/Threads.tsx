import { useNavigate, useSearch } from "@tanstack/react-router";
import { LayoutList, SearchX } from "lucide-react";
import { useCallback, useMemo, useRef } from "react";
import { useHotkeys } from "@/app/hotkeys";
import { OfferDemo } from "@/app/demo";
import { count, many } from "@/lib/text";
import type { ThreadFilter } from "@/lib/threadlist";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Filters } from "./Filters";
import { List } from "./List";
import { useThreadList, type View } from "./live";

function useFilter(): [ThreadFilter, (change: Partial<ThreadFilter>) => void] {
  const said = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const { q = "", status = "", flow = "", user = "" } = said;
  const filter = useMemo(() => ({ q, status, flow, user }), [q, status, flow, user]);
  // What was chosen is a place that one can go back to; what was typed changes the place.
  const change = useCallback(
    (change: Partial<ThreadFilter>) => void navigate({ to: "/threads", search: { ...filter, ...change }, replace: change.status === undefined && change.flow === undefined }),
    [navigate, filter],
  );
  return [filter, change];
}

export default function Threads() {
  const [filter, change] = useFilter();
  const view = useRef<View>({ first: 0, last: -1 });
  const { query, rows, loaded, searching } = useThreadList(filter, view);
  const search = useRef<HTMLInputElement>(null);
  useHotkeys({ "/": () => search.current?.focus() });
  const { hasNextPage, isFetching, fetchNextPage } = query;
  const more = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage(); // it would stop a list that is being read anew
  }, [hasNextPage, isFetching, fetchNextPage]);
  const filtered = !!(filter.q || filter.status || filter.flow || filter.user);
  return (
    <Page
      title="Threads"
      actions={
        <span role="status" className="text-soft">
          {searching ? `Searching, ${count(loaded)} so far …` : query.data && filtered ? `${count(rows.length)}${hasNextPage ? "+" : ""} found` : ""}
        </span>
      }
    >
      <Filters filter={filter} onChange={change} search={search} rows={rows} complete={!!query.data && !hasNextPage} />
      {query.error && <Failed error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the threads" />}
      {query.data && rows.length === 0 && !searching && (filtered ? <NoneFound filter={filter} searched={hasNextPage ? loaded : undefined} /> : <NoThreads />)}
      {rows.length > 0 && <List rows={rows} view={view} onEnd={more} />}
    </Page>
  );
}

const NoThreads = () => (
  <div>
    <Empty icon={<LayoutList aria-hidden />} title="There are no threads yet" command={'perdure run research "How can a cache be kept from serving stale data?"'}>
      A thread is everything that one conversation or job has done. This command starts one, and it appears here at once.
    </Empty>
    <OfferDemo />
  </div>
);

const NoneFound = ({ filter, searched }: { filter: ThreadFilter; searched?: number }) => (
  <Empty icon={<SearchX aria-hidden />} title="No thread fits">
    {filter.q && searched ? `The newest ${many(searched, "thread")} were searched. Choose a flow, a status or an owner to look further back.` : "Clear the filters to see all threads."}
  </Empty>
);
