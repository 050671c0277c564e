// What a page asks of the server first, asked while the rest of its script is still being read. It is a
// file of its own, which imports nothing. The client takes the responses: see api/early.ts.

interface Asked {
  response: Promise<Response>;
  stop: AbortController;
}

declare global {
  var perdureEarly: Map<string, Asked> | undefined;
}

const said = (name: string) => document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? "";

function askEarly() {
  const asked = new Map<string, Asked>();
  globalThis.perdureEarly = asked;
  const ask = (path: string, accept = "application/json") => {
    const url = new URL(path, new URL(said("perdure-api") || "/", location.href)).href;
    const stop = new AbortController();
    const response = fetch(url, { cache: "no-store", credentials: "same-origin", headers: { Accept: accept, "Perdure-Console": "1" }, signal: stop.signal });
    response.catch(() => {}); // whoever takes it is told
    asked.set(url, { response, stop });
  };
  const [page = "", id, more] = location.pathname.slice(said("perdure-base").length).split("/");
  if (page === "login") return;
  ask("v1/me");
  if (page !== "threads" || !id || more || !/^[\w.~-]+$/.test(id)) return; // others are written in more than one way
  ask(`v1/threads/${id}/events`, "text/event-stream");
  ask(`v1/threads/${id}`);
  ask(`v1/threads/${id}/state`);
}

// A token in the address becomes a session first. A page that has begun asks by itself.
if (!globalThis.perdureEarly && !location.hash.includes("token=")) askEarly();

export {};
