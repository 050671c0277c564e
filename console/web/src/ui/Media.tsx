import { FileDown, Image as ImageIcon } from "lucide-react";
import { useState } from "react";
import { perdure, type Schemas } from "@/api/client";
import { oneLine } from "@/lib/text";
import { Button, buttonClass } from "./Button";

/** An image or file of a thread. It is loaded when someone asks for it. */
export function MediaView({ thread, media }: { thread: string; media: Schemas["Media"] }) {
  const [shown, setShown] = useState(false);
  const name = oneLine(media.name ?? media.mime ?? "file", 80);
  const image = /^image\/(png|jpeg|gif|webp|avif)$/.test(media.mime ?? "");
  const source = media.blob ? perdure.url("GET /v1/blobs/{thread}/{hash}", { path: { thread, hash: media.blob } }) : image && media.data ? `data:${media.mime};base64,${media.data}` : undefined;
  if (!source) return <p className="outside text-xs text-soft">{media.url ? `File at ${oneLine(media.url, 200)}, not loaded` : name}</p>;
  if (!image)
    return (
      <a href={source} download={name} className={buttonClass("plain", "small")}>
        <FileDown aria-hidden />
        {name}
      </a>
    );
  if (!shown)
    return (
      <Button size="small" icon={<ImageIcon aria-hidden />} onClick={() => setShown(true)}>
        Show {name}
      </Button>
    );
  return <img src={source} alt={name} className="max-h-96 max-w-full rounded border border-line" />;
}

/** The media anywhere in a value. */
export function mediaIn(value: unknown, found: Schemas["Media"][] = [], depth = 0): Schemas["Media"][] {
  if (!value || typeof value !== "object" || depth > 12 || found.length > 20) return found;
  const one = value as Schemas["Media"];
  if (typeof one.blob === "string" && /^[0-9a-f]{64}$/.test(one.blob)) found.push(one);
  else for (const member of Object.values(value)) mediaIn(member, found, depth + 1);
  return found;
}
