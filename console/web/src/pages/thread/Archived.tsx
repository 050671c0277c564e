import { useQueryClient } from "@tanstack/react-query";
import { Archive } from "lucide-react";
import { api, type Problem } from "@/api/client";
import { keys, useCan, useWrite } from "@/api/queries";
import { failure } from "@/lib/lost";
import { oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Empty } from "@/ui/Empty";
import { sayError } from "@/ui/Toast";

/** What is shown of a thread that is in the archive. */
export function Archived({ thread, problem, onRestored }: { thread: string; problem: Problem; onRestored(): void }) {
  const client = useQueryClient();
  const admin = useCan("admin");
  const restore = useWrite({
    mutationFn: () => api.post("/v1/threads/{thread}/restore", { path: { thread }, body: {} }),
    onSuccess: () => {
      client.removeQueries({ queryKey: keys.thread(thread) });
      onRestored();
    },
    onError: (error) => sayError(...failure("The thread could not be restored", error, "The request", "The server does not answer. Restore the thread again later: it comes back once.")),
  });
  return (
    <Empty icon={<Archive aria-hidden />} title="This thread is in the archive">
      <p className="outside">{admin ? `${oneLine(thread, 200)} was moved out of the store. It comes back as it was.` : oneLine(problem.detail || problem.title, 400)}</p>
      {admin && (
        <Button look="main" className="mx-auto mt-4" busy={restore.isPending && "Restoring …"} onClick={() => restore.mutate()}>
          Restore it
        </Button>
      )}
    </Empty>
  );
}
