import { lazily } from "@/app/lazily";
import { Text } from "./Text";

const Rendered = lazily(() => import("./MarkdownRendered"), ({ text }: { text: string }) => <Text text={text} limit={2000} />);
const longest = 60_000; // longer texts are shown as they are

/** Markdown without raw HTML and without images. Links say where they lead before they are followed. */
export const Markdown = ({ text }: { text: string }) => (text.length > longest ? <Text text={text} /> : <Rendered text={text} />);
