import { Link, useParams } from "@tanstack/react-router";
import { ArrowLeft } from "lucide-react";
import { AskView } from "@/asks/AskView";
import { buttonClass } from "@/ui/Button";
import { Page } from "@/ui/Page";

/** One ask on a page of its own, for links in mails. */
export default function Ask() {
  const { ask } = useParams({ from: "/shell/asks/$ask" });
  return (
    <Page
      title="Ask"
      heading={
        <>
          <Link to="/inbox" aria-label="Inbox" title="Inbox" className={buttonClass("quiet", "small", true)}>
            <ArrowLeft aria-hidden />
          </Link>
          <h1 className="text-lg">Waits for a person</h1>
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
