import { KeyRound } from "lucide-react";
import { type FormEvent, useState } from "react";
import { useQueryClient } from "@tanstack/react-query";
import { api, type Schemas } from "@/api/client";
import { useCan, useWrite } from "@/api/queries";
import { failureText } from "@/lib/lost";
import { Button } from "@/ui/Button";
import { Copy } from "@/ui/Copy";
import { Dialog } from "@/ui/Dialog";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Field, Input, Select } from "@/ui/Field";
import { Badge } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time, useNow } from "@/ui/Time";
import { opsKeys, useDoing, useTokens } from "./queries";

/** Who may do what. The secret of a token is shown once, when it is created. */
export function Tokens() {
  const admin = useCan("admin");
  const tokens = useTokens(admin);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Schemas["Token"]>();
  const create = (
    <Button size="small" icon={<KeyRound aria-hidden />} onClick={() => setCreating(true)}>
      Create a token
    </Button>
  );
  if (tokens.error) return <Failed error={tokens.error} again={() => void tokens.refetch()} />;
  if (!tokens.data) return <Loading what="the tokens" />;
  const known = tokens.data.tokens;
  return (
    <>
      {known.length === 0 ? (
        <>
          <Empty icon={<KeyRound aria-hidden />} title="There are no tokens" command="perdure token create NAME">
            A token lets a program or a person use this server from elsewhere, with the scopes that you choose.
          </Empty>
          <div className="flex justify-center">{create}</div>
        </>
      ) : (
        <Panel title="Tokens" actions={create}>
          <Table label="Tokens" head={["Id", "Acts as", "May", "Limited to", "What for", "Created", "State", ""]}>
            {known.map((token) => (
              <TokenRow key={token.id} token={token} onRevoke={() => setRevoking(token)} />
            ))}
          </Table>
        </Panel>
      )}
      {creating && <CreateDialog onClose={() => setCreating(false)} />}
      {revoking && <RevokeDialog token={revoking} onClose={() => setRevoking(undefined)} />}
    </>
  );
}

function TokenRow({ token, onRevoke }: { token: Schemas["Token"]; onRevoke(): void }) {
  const now = useNow();
  const expired = token.expires !== undefined && Date.parse(token.expires) <= now;
  const over = token.revoked !== undefined || expired;
  return (
    <Row className={over ? "text-soft" : undefined}>
      <Cell className="font-mono text-xs whitespace-nowrap">{token.id}</Cell>
      <Cell className="font-medium">
        <Line text={token.subject} />
      </Cell>
      <Cell>{token.scopes.join(", ")}</Cell>
      <Cell>{token.user ? <Line text={`the threads of ${token.user}`} /> : <span className="text-soft">nothing</span>}</Cell>
      <Cell className="max-w-60">
        <Line text={token.note ?? ""} />
      </Cell>
      <Cell className="whitespace-nowrap">
        <Time at={token.created} />
        {token.by && <bdi className="text-faint"> by {token.by}</bdi>}
      </Cell>
      <Cell className="whitespace-nowrap">
        {token.revoked ? (
          <Badge>revoked</Badge>
        ) : expired ? (
          <Badge>expired</Badge>
        ) : (
          <>
            <Badge tone="done">valid</Badge>
            {token.expires && (
              <span className="ml-1.5 text-xs text-soft">
                ends <Time at={token.expires} />
              </span>
            )}
          </>
        )}
      </Cell>
      <Cell className="text-right">
        {!over && (
          <Button look="danger" size="small" aria-label={`Revoke the token of ${token.subject}`} onClick={onRevoke}>
            Revoke
          </Button>
        )}
      </Cell>
    </Row>
  );
}

function RevokeDialog({ token, onClose }: { token: Schemas["Token"]; onClose(): void }) {
  const revoke = useDoing(
    () => `The token of ${token.subject} is revoked`,
    "The token could not be revoked",
    () => api.delete("/v1/tokens/{token}", { path: { token: token.id } }),
  );
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Revoke the token of ${token.subject}?`}
      about="Whoever uses it is refused from now on, and sessions that began with it end. It cannot be given back; create a new one instead."
      actions={
        <>
          <Button onClick={onClose}>Keep it</Button>
          <Button look="danger" busy={revoke.isPending && "Revoking …"} onClick={() => revoke.mutate(undefined, { onSuccess: onClose })}>
            Revoke
          </Button>
        </>
      }
    />
  );
}

type Scope = Schemas["Token"]["scopes"][number];
const scopes: { name: Scope; what: string }[] = [
  { name: "read", what: "see threads, asks and files" },
  { name: "run", what: "start, control and fork runs" },
  { name: "answer", what: "answer what agents ask" },
  { name: "admin", what: "everything, tokens and erasing included" },
];

function CreateDialog({ onClose }: { onClose(): void }) {
  const client = useQueryClient();
  const [chosen, setChosen] = useState<Scope[]>(["read", "run", "answer"]);
  const create = useWrite({
    mutationFn: (body: Schemas["CreateToken"]) => api.post("/v1/tokens", { body }),
    onSettled: () => client.invalidateQueries({ queryKey: opsKeys.tokens() }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim() || undefined;
    create.mutate({ subject: text("subject"), user: text("user"), note: text("note"), days: Number(text("days")) || undefined, scopes: chosen });
  };
  const made = create.data;
  if (made)
    return (
      <Dialog
        open
        onClose={() => {}} // only by the button: it is not shown again
        title="The token is there"
        about="Copy it now. It is shown only here, and the server does not keep it."
        actions={
          <Button look="main" onClick={onClose}>
            I have copied it
          </Button>
        }
      >
        <div className="flex items-center gap-2 rounded border border-line bg-sunken py-1 pr-1 pl-3">
          <code data-testid="secret" className="min-w-0 flex-1 font-mono text-xs break-all">
            {made.secret}
          </code>
          <Copy text={made.secret} label="Copy" what="Copy the token" />
        </div>
        <p className="text-soft">
          It acts as {made.subject} and may {made.scopes.join(", ")}.
        </p>
      </Dialog>
    );
  const problem = failureText(create.error, "There may be a token now whose secret nobody has seen. Look at the list, and revoke it.");
  return (
    <Dialog
      open
      onClose={onClose}
      title="Create a token"
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="main" type="submit" form="create-token" disabled={chosen.length === 0} busy={create.isPending && "Creating …"}>
            Create
          </Button>
        </>
      }
    >
      <form id="create-token" className="space-y-3" onSubmit={submit}>
        <Field label="Acts as" required hint="The name that is recorded with what it does.">
          {(ids) => <Input {...ids} name="subject" required autoFocus autoComplete="off" spellCheck={false} />}
        </Field>
        <fieldset className="space-y-1">
          <legend className="font-medium">May</legend>
          {scopes.map(({ name, what }) => (
            <label key={name} className="flex items-center gap-2">
              <input type="checkbox" checked={chosen.includes(name)} onChange={(e) => setChosen(e.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name))} />
              {name} <span className="text-soft">{what}</span>
            </label>
          ))}
        </fieldset>
        <Field label="Limited to a user" hint="It then reaches only the threads and memory of that user, as a browser should.">
          {(ids) => <Input {...ids} name="user" autoComplete="off" spellCheck={false} />}
        </Field>
        <Field label="Ends after">
          {(ids) => (
            <Select {...ids} name="days" defaultValue="90">
              <option value="1">a day</option>
              <option value="30">30 days</option>
              <option value="90">90 days</option>
              <option value="365">a year</option>
              <option value="">never</option>
            </Select>
          )}
        </Field>
        <Field label="What for">{(ids) => <Input {...ids} name="note" autoComplete="off" />}</Field>
        {problem && (
          <p role="alert" className="outside text-bad">
            {problem}
          </p>
        )}
      </form>
    </Dialog>
  );
}
