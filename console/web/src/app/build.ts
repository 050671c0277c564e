import { basePath } from "./place";

/** The script with which a page begins. Its name has a hash of the build. */
export const entryOf = (page: string): string | undefined => /<script[^>]* src="([^"]*\/assets\/[^"]+\.js)"/.exec(page)?.[1];

const mine = () => document.querySelector("script[type=module][src]")?.getAttribute("src") ?? undefined;

/** The first script of the build that the server has now, if it is another one than this page's. */
export async function newBuild(now = mine()): Promise<string | undefined> {
  try {
    const response = await fetch(`${basePath}/`, { cache: "no-store", headers: { Accept: "text/html" } });
    const entry = response.ok ? entryOf(await response.text()) : undefined;
    return entry && now && entry !== now ? entry : undefined;
  } catch {
    return undefined; // no server, no build
  }
}

const tried = "perdure-build";

/** Loads the page again for a new build, once for each. Drafts outlive it. */
export function reloadFor(entry: string, reload = () => location.reload()) {
  try {
    if (sessionStorage.getItem(tried) === entry) return;
    sessionStorage.setItem(tried, entry);
  } catch {
    return; // it could go on for ever
  }
  reload();
}
