import { ShieldCheck } from "lucide-react";
import { api, type Schemas } from "@/api/client";
import { useCan } from "@/api/queries";
import { Button } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/Empty";
import { Cell, Panel, Row, Table } from "@/ui/Table";
import { Line, Text } from "@/ui/Text";
import { Time } from "@/ui/Time";
import { useDoing, useRules } from "./queries";

/** The calls that run without asking, because someone said "always allow". */
export function Rules() {
  const rules = useRules();
  const may = useCan("answer");
  const revoke = useDoing(
    (_, rule: Schemas["Rule"]) => `Calls of ${rule.tool} for ${rule.user} are asked about again`,
    "The rule could not be revoked",
    (rule) => api.delete("/v1/rules/{rule}", { path: { rule: rule.id } }),
  );
  if (rules.error) return <Failed error={rules.error} again={() => void rules.refetch()} />;
  if (!rules.data) return <Loading what="the rules" />;
  if (rules.data.rules.length === 0)
    return (
      <Empty icon={<ShieldCheck aria-hidden />} title="There are no rules" command="perdure rules">
        “Always allow”, where a tool permits it, makes a rule by which such calls run without asking. It appears here, and can be revoked.
      </Empty>
    );
  return (
    <Panel title="Rules">
      <Table label="Rules" head={["Tool", "For", "Agent", "Allows", "Made", ""]}>
        {rules.data.rules.map((rule) => (
          <Row key={rule.id}>
            <Cell className="font-mono text-xs font-medium">
              <Line text={rule.tool} />
            </Cell>
            <Cell>
              <Line text={rule.user || "threads without a user"} />
            </Cell>
            <Cell>
              <Line text={`${rule.agent} in ${rule.flow}`} />
            </Cell>
            <Cell className="max-w-96">
              <Text text={rule.allows ?? ""} limit={300} />
            </Cell>
            <Cell className="whitespace-nowrap">
              <Time at={rule.created} />
              {rule.by && <bdi className="text-faint"> by {rule.by}</bdi>}
              {rule.expires && (
                <span className="ml-1.5 text-xs text-soft">
                  ends <Time at={rule.expires} />
                </span>
              )}
            </Cell>
            <Cell className="text-right">
              {may && (
                <Button look="danger" size="small" aria-label={`Revoke the rule for ${rule.tool}`} disabled={revoke.isPending} onClick={() => revoke.mutate(rule)}>
                  Revoke
                </Button>
              )}
            </Cell>
          </Row>
        ))}
      </Table>
    </Panel>
  );
}
