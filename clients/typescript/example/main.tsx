// A chat with an agent that survives refreshes, lost connections and killed servers.
import { newId, Perdure, type Schemas } from "@perdure/client";
import { PerdureProvider, useThread } from "@perdure/client/react";
import { type FormEvent, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";

interface Access {
  user: string;
  url: string;
  token: string;
}

/** The flow of the server that is the agent. */
const flow = "chat";

const root = document.getElementById("root")!;

/** Gets a token from the back end, which knows who the user is, as soon as it can; undefined if nobody is logged in. */
async function getAccess(): Promise<Access | undefined> {
  for (;;) {
    const response = await fetch("/token", { method: "POST" }).catch(() => undefined);
    if (response?.ok) return (await response.json()) as Access;
    if (response?.status === 401) return undefined;
    if (!root.hasChildNodes()) root.textContent = "The server is away. It will be back.";
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

/** The thread is part of the address, so that a refresh finds it again. */
function threadOfPage(): string {
  if (!location.hash) history.replaceState(null, "", `#${newId()}`);
  return location.hash.slice(1);
}

function Message({ record }: { record: Schemas["Record"] }) {
  const { role, parts = [] } = record.message;
  return parts.map((part, at) => {
    const key = `${record.id} ${at}`;
    if (part.call) return <li key={key} className="call">→ {part.call.name}({part.call.args})</li>;
    if (part.result) return <li key={key} className="call">← {part.result.text}</li>;
    return part.text ? <li key={key} className={role}>{part.text}</li> : null;
  });
}

function Ask({ ask, answer }: { ask: Schemas["AskInfo"]; answer: (decision: string) => Promise<unknown> }) {
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState("");
  const decide = (decision: string) => {
    setBusy(true);
    answer(decision).catch((error: Error) => {
      setBusy(false);
      setFailed(error.message);
    });
  };
  return (
    <section aria-label="approval">
      {ask.prompt}
      <pre>{JSON.stringify(ask.data, null, 2)}</pre>
      <button disabled={busy} onClick={() => decide("approve")}>Approve</button> <button disabled={busy} onClick={() => decide("reject")}>Reject</button>
      {failed && <p role="alert">{failed}</p>}
    </section>
  );
}

function Chat({ user }: { user: string }) {
  const [id, setId] = useState(threadOfPage);
  const { ready, messages, sending, live, asks, run, connection, problem, start, answer, cancel } = useThread(id);
  const [text, setText] = useState("");
  const [failed, setFailed] = useState("");
  const send = (event: FormEvent) => {
    event.preventDefault();
    setText("");
    setFailed("");
    start(flow, text).catch((error: Error) => setFailed(error.message));
  };
  const begin = () => {
    history.pushState(null, "", location.pathname);
    setId(threadOfPage());
  };
  return (
    <>
      <header>
        <b>{user}</b>
        <button onClick={begin}>New chat</button>
      </header>
      <ol aria-label="conversation">
        {messages.map((record) => <Message key={record.id} record={record} />)}
        {sending.map((one) => <li key={one.key} className="user">{String(one.input)}</li>)}
        {live.filter((step) => step.text).map((step) => <li key={step.path} className="assistant live">{step.text}</li>)}
      </ol>
      {asks.map((ask) => <Ask key={ask.id} ask={ask} answer={(decision) => answer(ask.id, { decision })} />)}
      {connection === "lost" && <p role="status">The connection is lost. It will be back.</p>}
      {(problem || failed) && <p role="alert">{problem?.message ?? failed}</p>}
      <form onSubmit={send}>
        <input aria-label="message" value={text} onChange={(event) => setText(event.target.value)} placeholder="Say something" />
        <button disabled={!ready || !text}>Send</button>
        {run?.status === "running" && <button type="button" onClick={() => void cancel(run.id)}>Stop</button>}
      </form>
    </>
  );
}

function Login() {
  const [name, setName] = useState("");
  const login = async (event: FormEvent) => {
    event.preventDefault();
    const response = await fetch("/login", { method: "POST", body: name });
    if (response.ok) location.reload();
  };
  return (
    <form onSubmit={login}>
      <input aria-label="name" value={name} onChange={(event) => setName(event.target.value)} placeholder="Your name" />
      <button>Log in</button>
    </form>
  );
}

const access = await getAccess();
let first = access?.token;
const client = access && new Perdure({
  url: access.url,
  retry: { maxAttempts: 20 }, // of messages that are sent while the server is away
  // The client asks for another token when the server refuses the first.
  token: async () => {
    const token = first ?? (await getAccess())?.token;
    first = undefined;
    return token ?? "";
  },
});

createRoot(root).render(
  <StrictMode>{client ? <PerdureProvider client={client}><Chat user={access.user} /></PerdureProvider> : <Login />}</StrictMode>,
);
