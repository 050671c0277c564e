import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { count, many } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Command } from "@/ui/Copy";
import { Failed, Loading } from "@/ui/Empty";
import { Badge, Status } from "@/ui/Status";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useDue, useRetention } from "./queries";

/** How long threads are kept, what came of it, and what would go now. */
export function Retention() {
  const retention = useRetention();
  const [dry, setDry] = useState(false);
  if (retention.error) return <Failed error={retention.error} again={() => void retention.refetch()} />;
  if (!retention.data) return <Loading what="the rules" />;
  const r = retention.data;
  if (r.rules.length === 0)
    return (
      <Panel title="Rules">
        <div className="space-y-3 px-4 py-3">
          <p className="text-soft">Threads are kept forever. A rule says when they are archived or erased, for example</p>
          <Command text="perdure serve --keep 90d" />
        </div>
      </Panel>
    );
  const skipped = Object.entries(r.skipped ?? {}).filter(([, n]) => n > 0);
  return (
    <>
      <Panel title="Rules">
        <Table label="Rules" head={["Threads", "Kept after the last change", "Then", "In the archive", "Failed ones"]}>
          {r.rules.map((rule, n) => (
            <Row key={n}>
              <Cell>
                <Line text={ruleOf(rule)} />
              </Cell>
              <Cell>{rule.keep}</Cell>
              <Cell>{rule.keep === "forever" ? "" : rule.archive ? "archived" : "erased"}</Cell>
              <Cell>{rule.archive ? (rule.keep_archived ?? "forever") : ""}</Cell>
              <Cell>{rule.keep === "forever" ? "" : rule.unseen ? "go too" : "stay until someone has seen them"}</Cell>
            </Row>
          ))}
        </Table>
      </Panel>
      <Panel title="What came of it">
        <div className="space-y-1 px-4 py-3">
          <p>
            In total {many(r.total.archived, "thread")} archived, {count(r.total.erased)} erased, {count(r.total.expired)} erased from the archive.
          </p>
          {r.ended && (
            <p className="text-soft">
              The last pass ended <Time at={r.ended} /> with {count(r.archived)} archived, {count(r.erased)} erased, {count(r.expired)} erased from the archive.
            </p>
          )}
          {skipped.length > 0 && <p className="text-soft">Left for now: {skipped.map(([why, n]) => `${count(n)} ${why}`).join(", ")}.</p>}
          {(r.errors ?? []).map((error, n) => (
            <p key={n} className="outside text-bad">
              {error.thread} {error.error}
            </p>
          ))}
        </div>
      </Panel>
      <Panel
        title="What would go now"
        actions={
          <Button size="small" onClick={() => setDry(true)} disabled={dry}>
            Show it
          </Button>
        }
      >
        {dry ? <Due /> : <p className="px-4 py-3 text-soft">This only looks, and changes nothing.</p>}
      </Panel>
    </>
  );
}

function ruleOf(rule: Schemas["RetentionRule"]): string {
  const parts = [rule.flow && `of the flow ${rule.flow}`, rule.tenant && `of the tenant ${rule.tenant}`].filter(Boolean);
  return parts.length ? parts.join(", ") : "all others";
}

function Due() {
  const due = useDue(true);
  if (due.error) return <Failed error={due.error} again={() => void due.refetch()} />;
  if (!due.data) return <Loading what="what would go" />;
  const items = due.data.pages.flatMap((page) => page.threads);
  if (items.length === 0) return <p className="px-4 py-3 text-soft">No thread would be archived or erased now.</p>;
  return (
    <>
      <Table label="Threads that would go now" head={["Status", "Thread", "Flow", "Last change", "What happens"]}>
        {items.map((item) => (
          <Row key={item.thread}>
            <Cell>{item.status !== undefined && <Status status={item.status} />}</Cell>
            <Cell className="max-w-80">
              <Link to="/threads/$thread" params={{ thread: item.thread }} className="flex text-accent hover:underline">
                <Line text={item.thread} />
              </Link>
            </Cell>
            <Cell>
              <Line text={item.flow ?? ""} />
            </Cell>
            <Cell className="whitespace-nowrap">
              <Time at={item.updated} />
            </Cell>
            <Cell>{item.skipped ? <span className="text-soft">stays: {item.skipped}</span> : <Badge tone={item.action === "archive" ? "wait" : "bad"}>{item.action}</Badge>}</Cell>
          </Row>
        ))}
      </Table>
      {due.hasNextPage && (
        <Button look="quiet" className="m-2" busy={due.isFetchingNextPage && "Reading …"} onClick={() => void due.fetchNextPage()}>
          More
        </Button>
      )}
    </>
  );
}
