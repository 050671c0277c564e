import { KeyRound } from "lucide-react";
import { type FormEvent, useState } from "react";
import type { Ask } from "@/lib/ask";
import { Button } from "@/ui/Button";
import { Field, Input } from "@/ui/Field";
import { useProvide } from "./mutations";

/** Takes a secret. It is kept nowhere in the browser, also not as a draft. */
export function Provide({ ask, onDone }: { ask: Ask; onDone?(): void }) {
  const [secret, setSecret] = useState("");
  const provide = useProvide(ask);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (secret) provide.mutate(secret, { onSuccess: () => onDone?.() });
  };
  return (
    <form onSubmit={submit} className="flex flex-wrap items-end gap-2">
      <div className="min-w-52 flex-1">
        <Field label="Secret" hint="The server seals it. It appears in no journal, event or page.">
          {(ids) => <Input {...ids} type="password" autoComplete="off" value={secret} onChange={(e) => setSecret(e.target.value)} />}
        </Field>
      </div>
      <Button look="main" type="submit" icon={<KeyRound aria-hidden />} busy={provide.isPending && "Sending …"} disabled={!secret} className="mb-5 max-sm:h-11">
        Provide
      </Button>
    </form>
  );
}
