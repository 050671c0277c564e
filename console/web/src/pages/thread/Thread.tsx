import { useParams } from "@tanstack/react-router";
import { useThread } from "@/api/queries";
import { Failed, Loading } from "@/ui/Empty";
import { Json } from "@/ui/Json";
import { Page } from "@/ui/Page";

export default function Thread() {
  const { thread } = useParams({ from: "/shell/threads/$thread" });
  const { data, error, refetch, isPending } = useThread(thread);
  return (
    <Page title={data?.title ?? thread}>
      <div className="min-h-0 flex-1 overflow-y-auto p-4">
        {error && <Failed error={error} again={() => void refetch()} />}
        {isPending && <Loading what="the thread" />}
        {data && <Json value={data} open={3} />}
      </div>
    </Page>
  );
}
