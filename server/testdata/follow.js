// Follows a thread. Every event is reported once, in order, however often the
// connection is lost; text is what a step has said so far, until its event. It
// returns a function that ends it.
export function follow(url, kinds, { onEvent, onText, onDone, onError }, Source = globalThis.EventSource) {
  const live = new Map(); // steps that are being written, by run and path
  let last = new URL(url).searchParams.get("after") ?? "0";
  let source, over = false;
  const stop = () => { over = true; source.close(); };
  const open = () => {
    if (over) return;
    const at = new URL(url);
    at.searchParams.set("after", last);
    source = new Source(at);
    const told = (e) => {
      const event = JSON.parse(e.data);
      last = e.lastEventId;
      live.delete(event.run + event.path); // what was live is void now
      onEvent(event, e);
    };
    for (const kind of kinds) source.addEventListener(kind, told);
    source.addEventListener("delta", (e) => {
      const d = JSON.parse(e.data), key = d.run + d.path;
      let step = live.get(key);
      if (d.offset === 0) live.set(key, (step = { pass: d.pass, attempt: d.attempt, next: 0, text: "" }));
      if (step?.pass !== d.pass || step.attempt !== d.attempt || step.next !== d.offset) return live.delete(key); // some are missing
      step.next++;
      step.text += typeof d.data === "string" ? d.data : d.data?.text ?? ""; // an agent's are objects
      onText?.(d, step.text);
    });
    source.addEventListener("done", (e) => { stop(); onDone?.(JSON.parse(e.data)); });
    source.onerror = async () => {
      if (over || source.readyState !== 2) return; // it connects again by itself
      const why = await fetch(at, { headers: { Accept: "application/json" } }).catch(() => null);
      if (over) return;
      if (why?.status >= 400 && why.status < 429) onError?.(await why.json());
      else setTimeout(open, 1000);
    };
  };
  open();
  return stop;
}
