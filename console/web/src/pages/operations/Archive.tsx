import { Archive as ArchiveIcon, ShieldCheck, ShieldX } from "lucide-react";
import { type FormEvent, useState } from "react";
import { useMutation } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useCan } from "@/api/queries";
import { bytes, count } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Copy } from "@/ui/Copy";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Field, Input } from "@/ui/Field";
import { Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useArchived, useDoing } from "./queries";

/** Checks a thread's chain of hashes, and lists what is in the archive. */
export function Archive() {
  return (
    <>
      <Verify />
      <Archived />
    </>
  );
}

function Verify() {
  const [thread, setThread] = useState("");
  const verify = useMutation({ mutationFn: (id: string) => api.get("/v1/threads/{thread}/verify", { path: { thread: id } }) });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (thread.trim()) verify.mutate(thread.trim());
  };
  const v = verify.data;
  return (
    <Panel title="Verify a thread">
      <form className="space-y-3 px-4 py-3" onSubmit={submit}>
        <Field label="Id of the thread" hint="Every entry of the journal carries a hash of all entries before it. This checks each of them, and all stored values.">
          {(ids) => (
            <div className="flex max-w-xl gap-2">
              <Input {...ids} value={thread} onChange={(e) => setThread(e.target.value)} spellCheck={false} />
              <Button type="submit" busy={verify.isPending && "Verifying …"}>
                Verify
              </Button>
            </div>
          )}
        </Field>
        {verify.error && <Failed error={verify.error} />}
        {v && (
          <div role="status" className="flex items-start gap-2">
            {v.problem ? <ShieldX aria-hidden className="mt-0.5 size-4 shrink-0 text-bad" /> : <ShieldCheck aria-hidden className="mt-0.5 size-4 shrink-0 text-done" />}
            <div className="min-w-0">
              <p className={v.problem ? "outside font-medium text-bad" : "font-medium text-done"}>
                {v.problem ?? `The chain of ${count(v.entries)} entries is intact.`}
              </p>
              <p className="flex flex-wrap items-center gap-1 text-soft">
                {count(v.good)} of {count(v.entries)} entries are good; {bytes(v.bytes)}. Head <code className="font-mono text-xs break-all">{v.head}</code>
                <Copy text={v.head} what="Copy the head" />
              </p>
            </div>
          </div>
        )}
      </form>
    </Panel>
  );
}

function Archived() {
  const archived = useArchived();
  const admin = useCan("admin");
  const restore = useDoing(
    (_, thread: string) => `${thread} is back`,
    "The thread could not be restored",
    (thread: string) => api.post("/v1/threads/{thread}/restore", { path: { thread }, body: {} }),
  );
  if (archived.error) return <Failed error={archived.error} again={() => void archived.refetch()} />;
  if (!archived.data) return <Loading what="the archive" />;
  const threads = archived.data.pages.flatMap((page) => page.threads);
  if (threads.length === 0)
    return (
      <Empty icon={<ArchiveIcon aria-hidden />} title="The archive is empty" command="perdure archive THREAD --archive file:DIR">
        Threads that are not needed every day can be moved out of the store, and come back as they were.
      </Empty>
    );
  return (
    <Panel title="Archived threads">
      <Table label="Archived threads" head={["Status", "Thread", "Flow", "Archived", "Size", ""]}>
        {threads.map((thread) => (
          <Row key={thread.id}>
            <Cell>{thread.status !== undefined && <Status status={thread.status} />}</Cell>
            <Cell className="max-w-80">
              <Line text={thread.title || thread.id} />
            </Cell>
            <Cell>
              <Line text={thread.flow ?? ""} />
            </Cell>
            <Cell className="whitespace-nowrap">
              <Time at={thread.archived} />
            </Cell>
            <Cell className="whitespace-nowrap tabular-nums">{bytes(thread.size)}</Cell>
            <Cell className="text-right">
              {admin && (
                <Button size="small" aria-label={`Restore ${thread.id}`} busy={restore.isPending && restore.variables === thread.id && "Restoring …"} onClick={() => restore.mutate(thread.id)}>
                  Restore
                </Button>
              )}
            </Cell>
          </Row>
        ))}
      </Table>
      {archived.hasNextPage && (
        <Button look="quiet" className="m-2" busy={archived.isFetchingNextPage && "Reading …"} onClick={() => void archived.fetchNextPage()}>
          More
        </Button>
      )}
    </Panel>
  );
}
