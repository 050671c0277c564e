import { lazy, Suspense } from "react";
import { cut } from "@/lib/text";
import { Text } from "./Text";

const Rendered = lazy(() => import("./MarkdownRendered"));
const longest = 60_000; // longer texts are shown as they are

/** Markdown without raw HTML and without images. Links say where they lead before they are followed. */
export function Markdown({ text }: { text: string }) {
  if (text.length > longest) return <Text text={text} />;
  return (
    <Suspense fallback={<Text text={cut(text, 2000).text} />}>
      <Rendered text={text} />
    </Suspense>
  );
}
