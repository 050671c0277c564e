import { ExternalLink, Image } from "lucide-react";
import { memo, type ReactNode, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { oneLine, plain } from "@/lib/text";
import { Button } from "./Button";
import { Dialog } from "./Dialog";

function Link({ href, children }: { href: string; children: ReactNode }) {
  const [asking, setAsking] = useState(false);
  if (!/^https?:\/\//i.test(href)) {
    return (
      <>
        {children} <code className="font-mono text-xs text-faint">({oneLine(href, 200)})</code>
      </>
    );
  }
  return (
    <>
      <button type="button" className="text-left text-accent underline underline-offset-2" onClick={() => setAsking(true)}>
        {children}
        <ExternalLink aria-hidden className="ml-0.5 inline size-3 align-baseline" />
      </button>
      <Dialog
        open={asking}
        onClose={() => setAsking(false)}
        title="Open this address?"
        about="An agent or a tool wrote this link. Its text and its address may say different things."
        actions={
          <>
            <Button onClick={() => setAsking(false)}>Stay here</Button>
            <Button
              look="main"
              onClick={() => {
                setAsking(false);
                window.open(href, "_blank", "noopener,noreferrer");
              }}
            >
              Open in a new tab
            </Button>
          </>
        }
      >
        <p className="outside rounded bg-sunken p-3 font-mono text-xs">{plain(href)}</p>
      </Dialog>
    </>
  );
}

const components: Components = {
  a: ({ href, children }) => <Link href={href ?? ""}>{children}</Link>,
  img: ({ src, alt }) => (
    <span className="inline-flex items-center gap-1 rounded bg-sunken px-1.5 text-xs text-soft">
      <Image aria-hidden className="size-3.5" />
      image not loaded: {oneLine(alt || String(src ?? ""), 120)}
    </span>
  ),
  h1: ({ children }) => <p className="mt-3 text-lg font-semibold first:mt-0">{children}</p>,
  h2: ({ children }) => <p className="mt-3 text-base font-semibold first:mt-0">{children}</p>,
  h3: ({ children }) => <p className="mt-2 font-semibold first:mt-0">{children}</p>,
  h4: ({ children }) => <p className="mt-2 font-semibold first:mt-0">{children}</p>,
  p: ({ children }) => <p dir="auto">{children}</p>,
  ul: ({ children }) => <ul className="list-disc space-y-0.5 pl-5">{children}</ul>,
  ol: ({ children, start }) => (
    <ol start={start} className="list-decimal space-y-0.5 pl-5">
      {children}
    </ol>
  ),
  blockquote: ({ children }) => <blockquote className="border-l-2 border-line-strong pl-3 text-soft">{children}</blockquote>,
  pre: ({ children }) => <pre className="overflow-x-auto rounded bg-sunken p-3 font-mono text-xs [&_code]:bg-transparent [&_code]:p-0">{children}</pre>,
  code: ({ children }) => <code className="rounded bg-sunken px-1 py-0.5 font-mono text-xs">{children}</code>,
  hr: () => <hr className="border-line" />,
  table: ({ children }) => (
    <div className="overflow-x-auto">
      <table className="border-collapse text-left">{children}</table>
    </div>
  ),
  th: ({ children }) => <th className="border border-line px-2 py-1 font-medium">{children}</th>,
  td: ({ children }) => <td className="border border-line px-2 py-1">{children}</td>,
};

export default memo(function MarkdownRendered({ text }: { text: string }) {
  return (
    <div className="outside space-y-2">
      <ReactMarkdown remarkPlugins={[remarkGfm]} components={components}>
        {plain(text)}
      </ReactMarkdown>
    </div>
  );
});
