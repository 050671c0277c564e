import type { Schemas } from "@/api/client";
import type { Schema } from "./schema";

/** A flow with what is known about its input. */
export type Flow = Schemas["FlowInfo"] & { agent?: boolean; input?: unknown };

export const inputSchema = (flow: Flow): Schema | undefined => (flow.agent ? { type: "string", title: "Message" } : (flow.input as Schema | undefined));
