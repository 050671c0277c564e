import "./theme.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { onSignedOut, signIn } from "./api/client";
import { dropEarly } from "./api/early";
import { keys, meQuery, queryClient, stateQuery, threadQuery } from "./api/queries";
import { keepDraftsOf } from "./app/draft";
import { nonce } from "./app/place";
import { router } from "./app/router";
import "./app/theme";
import { followEarly } from "./pages/thread/log";

setNonce(nonce);

onSignedOut(() => {
  const ended = queryClient.getQueryData(keys.me()) ? "yes" : undefined; // someone was here
  queryClient.removeQueries({ queryKey: keys.me() });
  // Several requests may be refused before the login is shown.
  if (router.matchRoutes(router.latestLocation).some((match) => match.routeId === "/login")) return;
  void router.navigate({ to: "/login", search: { to: router.latestLocation.href, ended }, replace: true });
});

/** A link of perdure dev may carry a token behind #. It becomes a session, and leaves the address. */
async function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  await signIn(token).then(keepDraftsOf, () => {}); // then the page asks for one
}

/** Asks for who is here, for the file of the page that is opened, and for the thread that it shows, before anything is drawn. */
function loadPage() {
  for (const match of router.matchRoutes(router.latestLocation)) {
    const { component } = router.routesById[match.routeId as keyof typeof router.routesById].options;
    void component?.preload?.();
    if (match.routeId === "/shell") void queryClient.prefetchQuery(meQuery());
    if (match.routeId === "/shell/threads/$thread") {
      const { thread } = match.params;
      followEarly(thread);
      void queryClient.prefetchQuery(threadQuery(thread));
      void queryClient.prefetchQuery(stateQuery(thread));
    }
  }
}

const page = document.getElementById("root");
if (page) {
  await takeToken();
  loadPage();
  setTimeout(dropEarly); // what was asked for has been taken
  createRoot(page).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
}
