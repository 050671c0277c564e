// The back end of the example: it knows who its users are, and gets each a token for Perdure that
// reaches only what is theirs. Everything else goes from the page to Perdure directly.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Perdure } from "@perdure/client";

const url = process.env.PERDURE_URL ?? "http://127.0.0.1:7373";
const perdure = new Perdure({ url, token: process.env.PERDURE_TOKEN });
const pages = fileURLToPath(new URL("dist", import.meta.url));
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** Who is logged in. An application of yours has accounts and passwords in place of this. */
const sessions = new Map();

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  const user = sessions.get(/\bsession=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1]);
  const send = (status, body, headers = {}) => response.writeHead(status, { "Cache-Control": "no-store", ...headers }).end(body);
  try {
    if (request.method === "POST" && pathname === "/login") {
      let name = "";
      for await (const chunk of request) name += chunk;
      if (!/^[a-z]{1,20}$/.test(name)) return send(400, "a name has up to 20 small letters");
      const session = randomUUID();
      sessions.set(session, name);
      return send(204, undefined, { "Set-Cookie": `session=${session}; HttpOnly; SameSite=Strict; Path=/` });
    }
    if (request.method === "POST" && pathname === "/token") {
      if (!user) return send(401, "log in first");
      const { secret } = await perdure.request("POST /v1/tokens", { body: { user, scopes: ["read", "run", "answer"], minutes: 15, note: "chat" } });
      return send(200, JSON.stringify({ user, url, token: secret }), { "Content-Type": "application/json" });
    }
    const file = pathname === "/" ? "/index.html" : pathname;
    if (request.method !== "GET" || !/^\/[\w-]+(\/[\w-]+)?\.\w+$/.test(file)) return send(404, "there is no such page");
    const body = await readFile(join(pages, file));
    return send(200, body, { "Content-Type": types[extname(file)] ?? "application/octet-stream" });
  } catch (error) {
    return send(error.code === "ENOENT" ? 404 : 502, String(error.message ?? error));
  }
});

server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
