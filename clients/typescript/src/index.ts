/**
 * Client of Perdure: requests typed by the OpenAPI document, event streams that survive lost
 * connections and killed servers, and what a front end shows of a thread.
 */
export { type News, Perdure, type StartOptions } from "./client.js";
export { Live, type LivePart, type LiveStep } from "./live.js";
export type { Bytes, Input, Output, Route } from "./operations.js";
export { Problem, type Schemas } from "./problem.js";
export { newId, type Options } from "./request.js";
export type { Connection, Delta, Done, FollowOptions, StreamOptions, ThreadEvent, Update } from "./stream.js";
export { type Sending, ThreadStore, type ThreadView } from "./store.js";
export type { Attempts } from "./wait.js";
