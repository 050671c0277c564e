import { useMutation } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { LayoutList, MessagesSquare } from "lucide-react";
import { api } from "@/api/client";
import { keys, queryClient, useCan, useChats, useControl, useFlows, useThread } from "@/api/queries";
import { InlineAsk } from "@/asks/InlineAsk";
import { Composer } from "@/chat/Composer";
import { Conversation } from "@/chat/Conversation";
import { Ending } from "@/chat/Ending";
import { notSent } from "@/chat/message";
import type { CallView } from "@/chat/said";
import { useTalk } from "@/chat/talk";
import { askOfCall } from "@/lib/ask";
import { failure } from "@/lib/lost";
import { ended } from "@/lib/status";
import { oneLine } from "@/lib/text";
import { buttonClass } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Page } from "@/ui/Page";
import { Status } from "@/ui/Status";
import { Text } from "@/ui/Text";
import { say, sayError } from "@/ui/Toast";

/** A conversation on one thread. */
export default function Chat() {
  const { thread } = useParams({ from: "/shell/threads/$thread/chat" });
  return <Talking key={thread} id={thread} />;
}

function Talking({ id }: { id: string }) {
  const thread = useThread(id);
  const talk = useTalk(id);
  const may = useCan("run");
  const control = useControl(id, {
    onSuccess: () => say("The turn is being cancelled"),
    onError: (error) => sayError(...failure("It was not cancelled", error, "The request to stop", "The server does not answer. Stop it again if it goes on.")),
  });
  const runs = thread.data?.runs ?? [];
  const newest = runs.at(-1);
  const flows = useFlows();
  const chats = useChats(newest?.flow);
  const active = runs.filter((run) => !ended(run.status) && run.status !== "");
  const current = active.find((run) => run.status !== "queued") ?? active[0];
  const asks = active.flatMap((run) => run.asks ?? []).filter((ask) => ask.status === "open");
  const askOf = (call: CallView) => askOfCall(asks, call);
  const firsts = new Map<string, CallView>(); // the first of the calls that wait for an ask, which shows it
  for (const { parts } of talk.said)
    for (const part of parts) {
      const ask = part.kind === "call" && askOf(part.call);
      if (ask && !firsts.has(ask.id)) firsts.set(ask.id, part.call);
    }
  const others = asks.filter((ask) => !firsts.has(ask.id));
  const start = useMutation({
    mutationFn: ({ text, key, policy }: { text: string; key: string; policy: "steer" | "enqueue" }) =>
      api.post("/v1/threads/{thread}/runs", { path: { thread: id }, headers: { "Idempotency-Key": key }, body: { flow: newest?.flow ?? "", input: text, policy } }),
    onError: (error) => sayError(...notSent(error)),
    onSettled: () => void queryClient.invalidateQueries({ queryKey: keys.thread(id) }),
  });
  const stop = () => current && control.mutate({ verb: "cancel", run: current.id });
  const title = thread.data?.title || (newest ? `Chat with ${newest.flow}` : "Chat");
  return (
    <Page
      title={oneLine(title, 80)}
      actions={
        <>
          {thread.data && <Status status={thread.data.status} asks={asks.length} />}
          <Link to="/threads/$thread" params={{ thread: id }} className={buttonClass("plain", "small")}>
            <LayoutList aria-hidden />
            Thread
          </Link>
        </>
      }
    >
      <Ending watch={talk.said}>
        {(thread.error ?? talk.problem) && <Failed error={thread.error ?? talk.problem} again={() => void thread.refetch()} />}
        {!talk.ready && !talk.problem && <Loading what="the conversation" />}
        {talk.ready && talk.said.length === 0 && others.length === 0 && (
          <Empty icon={<MessagesSquare aria-hidden />} title="Nothing was said yet">
            {active.length ? "The flow works without words so far." : "Write the first message."}
          </Empty>
        )}
        <Conversation
          thread={id}
          said={talk.said}
          over={active.length === 0}
          asked={askOf}
          under={(call) => {
            const ask = askOf(call);
            return ask && firsts.get(ask.id) === call && <InlineAsk key={ask.id} ask={ask} />;
          }}
        />
        {others.map((ask) => (
          <div key={ask.id} className="overflow-hidden rounded border border-ask-bar bg-panel">
            <InlineAsk ask={ask} />
          </div>
        ))}
        {newest && ["failed", "blocked", "quarantined"].includes(newest.status) && (
          <div role="alert" className="rounded border border-line bg-bad-tint px-3 py-2">
            <p className="font-medium text-bad">The run is {newest.status}.</p>
            {newest.error && <Text text={newest.error} limit={600} />}
            <Link to="/threads/$thread" params={{ thread: id }} className="text-accent hover:underline">
              See why, and what can be done
            </Link>
          </div>
        )}
      </Ending>
      {may && newest && !chats && flows.isSuccess && (
        <p className="shrink-0 border-t border-line bg-panel px-4 py-3 text-center text-soft">{oneLine(newest.flow, 80)} is no agent, and takes no messages.</p>
      )}
      {may && newest && chats && (
        <footer className="shrink-0 border-t border-line bg-panel py-3">
          <div className="mx-auto max-w-3xl px-4">
            <Composer place={`chat ${id}`} busy={!!current} send={(message) => start.mutateAsync(message).then(() => undefined)} stop={current ? stop : undefined} />
          </div>
        </footer>
      )}
    </Page>
  );
}
