import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCan, useMe, useStats } from "@/api/queries";
import { many } from "@/lib/text";
import { duration } from "@/lib/time";
import { Page } from "@/ui/Page";
import { TabPanel, Tabs } from "@/ui/Tabs";
import { Archive } from "./Archive";
import { BulkJobs } from "./Bulk";
import { useTrouble } from "./queries";
import { Retention } from "./Retention";
import { Rules } from "./Rules";
import { Schedules } from "./Schedules";
import { Tokens } from "./Tokens";
import { Trouble } from "./Trouble";
import { Usage } from "./Usage";
import { Workers } from "./Workers";

const inside = "min-h-0 flex-1 overflow-y-auto space-y-4 p-4";

/** What operators look at: who works, what is stuck, what is kept, and who may do what. */
export default function Operations() {
  const { tab = "trouble" } = useSearch({ strict: false }) as { tab?: string };
  const navigate = useNavigate();
  const admin = useCan("admin");
  const { data: me } = useMe();
  const { data: stats } = useStats();
  const trouble = useTrouble();
  const limited = me?.user !== undefined; // to the threads of one user
  const tabs = [
    { id: "trouble", label: "Trouble", count: trouble.data?.threads.length },
    { id: "workers", label: "Workers", count: stats?.workers },
    { id: "usage", label: "Usage and store" },
    { id: "retention", label: "Retention" },
    { id: "schedules", label: "Schedules" },
    { id: "bulk", label: "Bulk jobs" },
    { id: "archive", label: "Archive and audit" },
    { id: "rules", label: "Rules" },
    ...(admin && !limited ? [{ id: "tokens", label: "Tokens" }] : []),
  ];
  const shown = tabs.some((one) => one.id === tab) ? tab : "trouble";
  return (
    <Page
      title="Operations"
      actions={
        stats && (
          <p className="text-xs text-faint">
            version {stats.version} · up {duration(stats.uptime * 1000)} · {many(stats.streams, "stream")} · {many(stats.threads, "thread")}
          </p>
        )
      }
    >
      <Tabs label="Operations" tabs={tabs} value={shown} onChange={(id) => void navigate({ to: "/operations", search: { tab: id } })}>
        <TabPanel id="trouble" className={inside}>
          <Trouble />
        </TabPanel>
        <TabPanel id="workers" className={inside}>
          <Workers />
        </TabPanel>
        <TabPanel id="usage" className={inside}>
          <Usage />
        </TabPanel>
        <TabPanel id="retention" className={inside}>
          <Retention />
        </TabPanel>
        <TabPanel id="schedules" className={inside}>
          <Schedules />
        </TabPanel>
        <TabPanel id="bulk" className={inside}>
          <BulkJobs />
        </TabPanel>
        <TabPanel id="archive" className={inside}>
          <Archive />
        </TabPanel>
        <TabPanel id="rules" className={inside}>
          <Rules />
        </TabPanel>
        <TabPanel id="tokens" className={inside}>
          <Tokens />
        </TabPanel>
      </Tabs>
    </Page>
  );
}
