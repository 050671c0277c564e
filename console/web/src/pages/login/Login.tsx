import { useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { Problem, signIn, signOut } from "@/api/client";
import { queryClient } from "@/api/queries";
import { keepDraftsOf } from "@/app/draft";
import { basePath } from "@/app/place";
import { Button } from "@/ui/Button";
import { Command } from "@/ui/Copy";
import { Field, Input } from "@/ui/Field";
import { Panel } from "@/ui/Table";

/** A path of this console to return to; anything else is ignored. */
function returnPath(to: string | undefined): string {
  if (!to?.startsWith("/") || to.startsWith("//")) return "/threads";
  const path = to.startsWith(`${basePath}/`) ? to.slice(basePath.length) : to;
  return /^\/login(\?|$)/.test(path) ? "/threads" : path;
}

export default function Login() {
  const { to, ended } = useSearch({ strict: false }) as { to?: string; ended?: string };
  const navigate = useNavigate();
  const router = useRouter();
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget).get("token") ?? "").trim();
    setBusy(true);
    setError(undefined);
    try {
      const me = await signIn(token);
      if (!me.scopes.some((scope) => scope === "read" || scope === "admin")) {
        await signOut();
        setError(`This token may ${me.scopes.join(" and ") || "do nothing"}, but not read, so there is nothing to see with it. Ask for one with the scope read.`);
        return setBusy(false);
      }
      keepDraftsOf(me);
      queryClient.clear(); // another person may have looked before
      const path = returnPath(to);
      router.history.push(basePath + path);
      await navigate({ to: path.split("?")[0] as "/threads", search: Object.fromEntries(new URLSearchParams(path.split("?")[1])), replace: true });
    } catch (failed) {
      if (failed instanceof Problem && failed.status === 401) setError("The server does not know this token. It may have expired or been revoked.");
      else setError(failed instanceof Error ? failed.message : String(failed));
      setBusy(false);
    }
  };
  return (
    <main className="flex min-h-full items-center justify-center p-4">
      <Panel className="w-full max-w-sm">
        <form className="space-y-4 p-6" onSubmit={(event) => void submit(event)}>
          <h1 className="text-xl">Sign in to Perdure</h1>
          {ended && (
            <p role="status" className="rounded bg-wait-tint px-3 py-2">
              Your session has ended: 12 hours are over, or its token has expired or been revoked. After signing in you are back where you were.
            </p>
          )}
          <Field label="Token" error={error}>
            {(ids) => <Input {...ids} name="token" type="password" autoComplete="current-password" required autoFocus spellCheck={false} />}
          </Field>
          <Button look="main" type="submit" className="w-full" busy={busy && "Signing in …"}>
            Sign in
          </Button>
          <div className="space-y-2 text-soft">
            <p>An operator makes a token with</p>
            <Command text="perdure token create NAME" />
          </div>
        </form>
      </Panel>
    </main>
  );
}
