import { createRootRoute, createRoute, createRouter, Outlet, redirect } from "@tanstack/react-router";
import { Problem } from "@/api/client";
import { meQuery, queryClient } from "@/api/queries";
import Thread from "@/pages/thread/Thread";
import Threads from "@/pages/threads/Threads";
import { Failed, Loading } from "@/ui/Empty";
import { dropFailures, Toasts } from "@/ui/Toast";
import { lazily, MissingParts } from "./lazily";
import { basePath } from "./place";
import { Shell } from "./Shell";

// The two pages that people open most are part of the first file; the others come when they are needed.
const page = (file: Parameters<typeof lazily>[0]) => lazily(file, () => <Loading what="the page" />);

const root = createRootRoute({
  component: () => (
    <>
      <Outlet />
      <MissingParts />
      <Toasts />
    </>
  ),
  notFoundComponent: () => <Failed error={new Problem("not-found", 404, { title: "There is no such page", detail: "The address leads nowhere in this console." })} />,
});

/** Texts of the address, by name. Pages read what they know and ignore the rest. */
type Search = Record<string, string | undefined>;
const plainSearch = (search: Record<string, unknown>): Search => search as Search;

const login = createRoute({
  getParentRoute: () => root,
  path: "login",
  validateSearch: plainSearch,
  component: page(() => import("@/pages/login/Login")),
});

const shell = createRoute({
  getParentRoute: () => root,
  id: "shell",
  component: Shell,
  validateSearch: plainSearch,
  beforeLoad: async ({ location }) => {
    try {
      await queryClient.ensureQueryData(meQuery());
    } catch (error) {
      if (error instanceof Problem && error.status === 401) throw redirect({ to: "/login", search: { to: location.href } });
    }
  },
});

const home = createRoute({
  getParentRoute: () => shell,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/threads" });
  },
});

const threads = createRoute({ getParentRoute: () => shell, path: "threads", component: Threads });
const thread = createRoute({ getParentRoute: () => shell, path: "threads/$thread", component: Thread });
const travel = createRoute({ getParentRoute: () => shell, path: "threads/$thread/travel", component: page(() => import("@/pages/travel/Travel")) });
const inbox = createRoute({ getParentRoute: () => shell, path: "inbox", component: page(() => import("@/pages/inbox/Inbox")) });
const ask = createRoute({ getParentRoute: () => shell, path: "asks/$ask", component: page(() => import("@/pages/ask/Ask")) });
const chat = createRoute({ getParentRoute: () => shell, path: "threads/$thread/chat", component: page(() => import("@/pages/chat/Chat")) });
const newChat = createRoute({ getParentRoute: () => shell, path: "chat/$flow", component: page(() => import("@/pages/chat/NewChat")) });
const start = createRoute({ getParentRoute: () => shell, path: "start", component: page(() => import("@/pages/start/Start")) });
const operations = createRoute({ getParentRoute: () => shell, path: "operations", component: page(() => import("@/pages/operations/Operations")) });

export const router = createRouter({
  routeTree: root.addChildren([login, shell.addChildren([home, threads, thread, travel, inbox, ask, chat, newChat, start, operations])]),
  basepath: basePath,
  defaultPreload: "intent",
  // A fault takes only the page away that has it: what is around it stays.
  defaultErrorComponent: ({ error, reset }) => <Failed error={error} again={reset} />,
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const said = new URLSearchParams();
    for (const [name, value] of Object.entries(search)) if (value !== undefined && value !== "") said.set(name, String(value));
    return said.size ? `?${said}` : "";
  },
});

router.subscribe("onBeforeLoad", ({ pathChanged }) => pathChanged && dropFailures());

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
