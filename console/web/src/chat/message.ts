import { newId } from "@perdure/client";
import { failure } from "@/lib/lost";

export type Policy = "steer" | "enqueue";

export interface Message {
  text: string;
  /** It makes it one message, however often it is sent. */
  key: string;
  policy: Policy;
}

/** What someone writes. */
export interface Draft {
  text: string;
  /** The message that was tried with this text. It is gone once the text is another. */
  tried?: Message;
}

/** The draft with another text, which is another message. */
export const edited = (draft: Draft | undefined, text: string): Draft => (draft?.text === text ? draft : { text });

/** The message that a draft is: the one that was tried if its text has not changed, so that it is not sent twice. */
export function messageOf(draft: Draft | undefined, policy: Policy): Message | undefined {
  const text = draft?.text.trim();
  if (!text) return undefined;
  return draft?.tried?.text === text ? draft.tried : { text, key: newId(), policy };
}

/** What is left of a draft after a message was taken. */
export const after = (draft: Draft | undefined, taken: Message): Draft | undefined => (draft?.tried?.key === taken.key ? undefined : draft);

/** What to say when a message was not taken: without a response, nobody knows. */
export const notSent = (error: unknown) => failure("The message was not sent", error, "The message", "The server does not answer. Send it again later: it is not said twice.");
