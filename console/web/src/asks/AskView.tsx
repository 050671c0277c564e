import { Link } from "@tanstack/react-router";
import { CircleCheck, Clock, Link as LinkIcon, MessagesSquare, UserRound } from "lucide-react";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { useAsk, useMessages, useThread } from "@/api/queries";
import { useDraft } from "@/app/draft";
import { basePath } from "@/app/place";
import { Conversation } from "@/chat/Conversation";
import { type Ask, askedCall, askedSecret, askOfCall, closedText, replyText } from "@/lib/ask";
import { conversation, decided } from "@/chat/said";
import { ended } from "@/lib/status";
import { oneLine, plain, precise } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Copy } from "@/ui/Copy";
import { Diff } from "@/ui/Diff";
import { Failed, Loading } from "@/ui/Empty";
import { Json } from "@/ui/Json";
import { Badge } from "@/ui/Status";
import { Line, Text } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { type Draft, useAnswerParts, without, writtenIn } from "./Answer";
import { useFold } from "./fold";

interface AskViewProps {
  id: string;
  /** What is known of it already. */
  known?: Ask;
  keys?: boolean;
  onDone?(): void;
}

/** All that one needs to know to answer an ask, and the answer. */
export function AskView({ id, known, keys, onDone }: AskViewProps) {
  const query = useAsk(id, known);
  const ask = query.data;
  if (query.error && !ask) return <Failed error={query.error} again={() => void query.refetch()} />;
  if (!ask) return <Loading what="the ask" />;
  return <Known key={ask.id} ask={ask} keys={keys} onDone={onDone} />;
}

function Known({ ask, keys, onDone }: Omit<AskViewProps, "id" | "known"> & { ask: Ask }) {
  const over = closedText(ask);
  const fold = useFold(ask);
  const { buttons, panel } = useAnswerParts(ask, { keys: keys !== false && !over, onDone, fold });
  return (
    <article aria-label={oneLine(ask.prompt ?? "Ask", 120)} className="flex min-h-full flex-col">
      <div className="flex-1 space-y-5 p-4 pb-6">
        <Head ask={ask} />
        <What ask={ask} open={fold.open} />
        {!over && panel}
        <Gate ask={ask} />
        <Before ask={ask} />
      </div>
      {(over || buttons) && (
        <footer className="sticky bottom-0 z-10 border-t border-line bg-page px-4 py-3">{over ? <Closed ask={ask} text={over} /> : buttons}</footer>
      )}
    </article>
  );
}

function Head({ ask }: { ask: Ask }) {
  const { data: thread } = useThread(ask.thread);
  const run = thread?.runs?.find((one) => one.id === ask.run);
  return (
    <header className="space-y-2">
      <h2 className="outside text-lg" dir="auto">
        {precise(ask.prompt || "An answer is needed")}
      </h2>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1 text-soft">
        <dl className="contents">
          <Fact name="Thread">
            <Link to="/threads/$thread" params={{ thread: ask.thread }} className="inline-flex max-w-72 text-accent hover:underline">
              <Line text={thread?.title || ask.thread} />
            </Link>
          </Fact>
          {run && <Fact name="Flow">{oneLine(run.flow, 80)}</Fact>}
          {thread?.user && <Fact name="Owner">{oneLine(thread.user, 80)}</Fact>}
          <Fact name="Asked">
            <Time at={ask.asked} />
          </Fact>
          {ask.expires && ask.status === "open" && (
            <Fact name="Expires">
              <Time at={ask.expires} className="font-medium text-ask" />
            </Fact>
          )}
        </dl>
        <Copy text={() => `${location.origin}${basePath}/asks/${encodeURIComponent(ask.id)}`} label="Copy link" what="Copy a link to this ask" />
      </div>
    </header>
  );
}

const Fact = ({ name, children }: { name: string; children: ReactNode }) => (
  <div className="flex items-baseline gap-1.5">
    <dt className="text-xs text-faint">{name}</dt>
    <dd className="min-w-0 text-text">{children}</dd>
  </div>
);

const Part = ({ title, children }: { title: string; children: ReactNode }) => (
  <section className="space-y-1.5">
    <h3 className="text-xs font-medium text-faint">{title}</h3>
    {children}
  </section>
);

/** The call with its arguments, or what the flow shows. */
function What({ ask, open }: { ask: Ask; open: number }) {
  const call = askedCall(ask);
  if (call)
    return (
      <Part title="The call">
        <div className="rounded border border-line bg-panel">
          <div className="border-b border-line px-3 py-2">
            <bdi className="font-mono font-semibold">{precise(call.tool)}</bdi>
            {call.description && !ask.prompt?.includes(call.description) && <Text text={call.description} className="text-soft" />}
          </div>
          <Json value={call.args ?? {}} open={open} className="px-1 py-2" />
          {call.ref && <p className="border-t border-line px-3 py-2 text-soft">It goes on elsewhere as {plain(call.ref)}.</p>}
        </div>
      </Part>
    );
  const secret = askedSecret(ask);
  if (secret)
    return (
      <Part title="The credential">
        <p className="rounded border border-line bg-panel px-3 py-2">
          <bdi className="font-mono font-semibold">{precise(secret.name)}</bdi>
          {secret.agent && (
            <span className="text-soft">
              {" "}
              for the agent <bdi>{plain(secret.agent)}</bdi>
            </span>
          )}
        </p>
      </Part>
    );
  if (ask.data === undefined || ask.data === null) return null;
  return (
    <Part title="What it is about">
      <div className="rounded border border-line bg-panel px-1 py-2">{typeof ask.data === "string" ? <Text text={ask.data} limit={open === Number.POSITIVE_INFINITY ? open : undefined} className="px-2" /> : <Json value={ask.data} open={open} />}</div>
    </Part>
  );
}

/** Why a person is asked, and who. */
function Gate({ ask }: { ask: Ask }) {
  const call = askedCall(ask);
  const open = ask.status === "open";
  const who = ask.who?.map((name) => (name.startsWith("group:") ? `the group ${plain(name.slice(6))}` : plain(name))).join(", ");
  return (
    <Part title={open ? "Why you are asked" : "Why a person was asked"}>
      <p>
        {call && ask.kind === "approval" ? (
          <>
            The agent <b className="font-medium">{plain(call.agent ?? "")}</b> may call <b className="font-medium">{plain(call.tool)}</b> only if a person agrees.
          </>
        ) : ask.kind === "credential" ? (
          "A tool needs a secret that is not there yet."
        ) : (
          "The flow needs an answer."
        )}{" "}
        <span className="text-soft">
          {open && (who ? `It may be answered by ${who}. ` : "Anyone who may answer asks can decide. ")}
          It {open ? "waits" : "waited"} at <bdi className="font-mono text-xs">{plain(ask.path)}</bdi>.
        </span>
      </p>
    </Part>
  );
}

const recent = 4;

/** What was said before the question came up. */
function Before({ ask }: { ask: Ask }) {
  const messages = useMessages(ask.thread);
  const { data: thread } = useThread(ask.thread);
  const [all, setAll] = useState(false);
  const call = askedCall(ask)?.call;
  const others = thread?.runs?.flatMap((run) => run.asks ?? []).filter((one) => one.id !== ask.id) ?? [];
  const said = useMemo(() => {
    const said = conversation(messages.data?.messages ?? []);
    return ask.status === "open" ? said : decided(said, call, { decision: ask.answer?.decision, by: ask.answer?.by, expired: ask.status === "expired" });
  }, [messages.data, ask, call]);
  if (said.length === 0) return null;
  const shown = all ? said : said.slice(-recent);
  return (
    <Part title="What led to it">
      {shown.length < said.length && (
        <Button look="quiet" size="small" className="-ml-2" icon={<MessagesSquare aria-hidden />} onClick={() => setAll(true)}>
          Show the {said.length - shown.length} messages before
        </Button>
      )}
      <Conversation thread={ask.thread} said={shown} over={!!thread?.runs?.length && thread.runs.every((run) => ended(run.status))} asked={(one) => askOfCall([ask, ...others], one)} />
    </Part>
  );
}

/** How a closed ask ended. */
export function Closed({ ask, text }: { ask: Ask; text: string }) {
  const call = askedCall(ask);
  const answer = ask.answer;
  const [draft, setDraft] = useDraft<Draft>(`ask ${ask.id}`);
  const taken = !!answer && draft?.tried === replyText(answer);
  const left = writtenIn(draft).filter(({ tried }) => !(taken && tried));
  const settled = !!draft && left.length === 0;
  useEffect(() => {
    if (settled) setDraft(undefined);
  }, [settled, setDraft]);
  return (
    <div role="status" className="space-y-2">
      <p className="flex flex-wrap items-center gap-2">
        <Badge tone={ask.status === "answered" ? "done" : "idle"}>
          {ask.status === "answered" ? <CircleCheck aria-hidden /> : <Clock aria-hidden />}
          {plain(ask.status)}
        </Badge>
        <bdi className="font-medium">{plain(text)}</bdi>
        {answer?.time && <Time at={answer.time} className="text-soft" />}
      </p>
      {answer?.message && (
        <p className="flex gap-2 text-soft">
          <UserRound aria-hidden className="mt-0.5 size-4 shrink-0" />
          <bdi>{plain(answer.message)}</bdi>
        </p>
      )}
      {answer?.decision === "edit" && call && <Diff before={call.args} after={answer.value} label="What was edited" />}
      {answer?.value !== undefined && answer.value !== null && answer.decision !== "edit" && <Json value={answer.value} open={2} />}
      <Link to="/threads/$thread" params={{ thread: ask.thread }} className="inline-flex items-center gap-1 text-accent hover:underline">
        <LinkIcon aria-hidden className="size-3.5" />
        See what came of it
      </Link>
      {left.map(({ decision, text, tried }) => (
        <section key={decision} aria-label={tried ? "Your answer" : "What you had begun"} className="rounded border border-line bg-panel px-3 py-2">
          <p className="flex items-center gap-1 text-xs text-faint">
            <span className="flex-1">{tried ? "Your answer was not taken." : "You had begun another answer. It was not sent."}</span>
            <Copy text={text} label="Copy" what="Copy what you have written" />
            <Button look="quiet" size="small" onClick={() => setDraft((before) => without(before, decision))}>
              Discard
            </Button>
          </p>
          <Text text={text} limit={600} />
        </section>
      ))}
    </div>
  );
}
