import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { MessagesSquare } from "lucide-react";
import { api } from "@/api/client";
import { useCan, useChats, useFlows } from "@/api/queries";
import { Composer } from "@/chat/Composer";
import { notSent } from "@/chat/message";
import { quoted } from "@/lib/commands";
import { oneLine } from "@/lib/text";
import { Empty } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { sayError } from "@/ui/Toast";

/** A conversation that begins with the first message. */
export default function NewChat() {
  const { flow } = useParams({ from: "/shell/chat/$flow" });
  const navigate = useNavigate();
  const may = useCan("run");
  const flows = useFlows();
  const chats = useChats(flow);
  const start = useMutation({
    mutationFn: ({ text, key }: { text: string; key: string }) => api.post("/v1/runs", { headers: { "Idempotency-Key": key }, body: { flow, input: text } }),
    onSuccess: (run) => navigate({ to: "/threads/$thread/chat", params: { thread: run?.thread ?? "" }, replace: true }),
    onError: (error) => sayError(...notSent(error)),
  });
  if (flows.isSuccess && !chats)
    return (
      <Page title={oneLine(flow, 80)}>
        <Empty icon={<MessagesSquare aria-hidden />} title={`${oneLine(flow, 80)} takes no messages`}>
          No agent of this name is known here.{" "}
          <Link to="/start" search={{ flow }} className="text-accent hover:underline">
            See what can be started
          </Link>
        </Empty>
      </Page>
    );
  return (
    <Page title={`Chat with ${oneLine(flow, 80)}`}>
      <div className="min-h-0 flex-1 overflow-y-auto">
        <Empty icon={<MessagesSquare aria-hidden />} title={`A new thread of ${oneLine(flow, 80)}`} command={`perdure chat ${quoted(flow)}`}>
          {may ? "It begins with your first message, and goes on when you close this page." : "Your token may look, but not start anything."} The same in a terminal:
        </Empty>
      </div>
      {may && chats && (
        <footer className="shrink-0 border-t border-line bg-panel py-3">
          <div className="mx-auto max-w-3xl px-4">
            <Composer place={`new chat ${flow}`} busy={false} send={(message) => start.mutateAsync(message).then(() => undefined)} />
          </div>
        </footer>
      )}
    </Page>
  );
}
