import { Link, useParams } from "@tanstack/react-router";
import { ArrowLeft } from "lucide-react";
import { useAsk } from "@/api/queries";
import { AskView } from "@/asks/AskView";
import { headingOf } from "@/lib/ask";
import { oneLine } from "@/lib/text";
import { buttonClass } from "@/ui/Button";
import { Page } from "@/ui/Page";

/** One ask on a page of its own, for links in mails. */
export default function Ask() {
  const { ask } = useParams({ from: "/shell/asks/$ask" });
  const { data, error } = useAsk(ask);
  const title = data ? headingOf(data) : error ? "There is nothing to answer here" : "An ask";
  return (
    <Page
      title={title}
      heading={
        <>
          <Link to="/inbox" aria-label="Inbox" title="Inbox" className={buttonClass("quiet", "small", true)}>
            <ArrowLeft aria-hidden />
          </Link>
          <h1 className="text-lg">{oneLine(title, 120)}</h1>
        </>
      }
    >
      <div className="min-h-0 flex-1 overflow-y-auto">
        <div className="mx-auto flex min-h-full max-w-3xl flex-col [&>article]:flex-1">
          <AskView key={ask} id={ask} />
        </div>
      </div>
    </Page>
  );
}
