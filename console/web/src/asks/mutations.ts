import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, Problem, type Schemas } from "@/api/client";
import { keys } from "@/api/queries";
import { type Ask, byThread, closedText, pastWord } from "@/lib/ask";
import { say, sayError } from "@/ui/Toast";

export type Reply = Schemas["AnswerAsk"];

/** Whether someone else was faster, or the ask was closed for another reason. */
const tooLate = (error: unknown) => error instanceof Problem && (error.type === "answered" || error.type === "ask-over" || error.type === "no-ask");

/** Reads an ask again that someone else has answered, and says so. */
async function sayTooLate(client: ReturnType<typeof useQueryClient>, ask: string) {
  const now = await client.fetchQuery({ queryKey: keys.ask(ask), queryFn: () => api.get("/v1/asks/{ask}", { path: { ask } }), staleTime: 0 }).catch(() => undefined);
  sayError("Your answer was not taken", now ? `${closedText(now) ?? "The ask is closed"}, before your answer arrived.` : "The ask does not exist any more.");
}

/** Answers an ask. The first answer wins: a later one says whose it was. */
export function useAnswer(ask: Ask) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (reply: Reply) => api.post("/v1/asks/{ask}/answer", { path: { ask: ask.id }, body: reply }),
    onSuccess: (answered) => {
      client.setQueryData(keys.ask(ask.id), answered);
      say(pastWord(answered.answer?.decision));
    },
    onError: (error) => (tooLate(error) ? sayTooLate(client, ask.id) : sayError("The answer was not taken", error)),
    onSettled: () => reread(client, [ask.thread]),
  });
}

/** Provides a secret, which only the server keeps. */
export function useProvide(ask: Ask) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (secret: string) => api.post("/v1/asks/{ask}/secret", { path: { ask: ask.id }, body: { secret } }),
    onSuccess: () => say("Provided"),
    onError: (error) => (tooLate(error) ? sayTooLate(client, ask.id) : sayError("The secret was not taken", error)),
    onSettled: () => reread(client, [ask.thread], ask.id),
  });
}

function reread(client: ReturnType<typeof useQueryClient>, threads: string[], ask?: string) {
  void client.invalidateQueries({ queryKey: keys.asks() });
  for (const thread of threads) void client.invalidateQueries({ queryKey: keys.thread(thread) });
  if (ask) void client.invalidateQueries({ queryKey: keys.ask(ask) });
}

/** Answers several asks alike: those of one thread all or none, and then one by one if someone was faster. */
export function useAnswerAll() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ asks, reply }: { asks: Ask[]; reply: Reply }) => {
      let taken = 0;
      const late: string[] = [];
      for (const group of byThread(asks)) {
        const thread = group[0]?.thread ?? "";
        try {
          await api.post("/v1/threads/{thread}/answers", { path: { thread }, body: { answers: group.map((ask) => ({ ask: ask.id, ...reply })) } });
          taken += group.length;
        } catch (error) {
          if (!tooLate(error)) throw error;
          for (const ask of group) {
            try {
              await api.post("/v1/asks/{ask}/answer", { path: { ask: ask.id }, body: reply });
              taken++;
            } catch (one) {
              if (!tooLate(one)) throw one;
              late.push(ask.id);
            }
          }
        }
      }
      return { taken, late };
    },
    onSuccess: ({ taken, late }, { reply }) => {
      if (taken) say(`${pastWord(reply.decision)}: ${taken}`);
      if (late.length) sayError(`Others were faster with ${late.length}`, "Their answers count. Yours had no effect there.");
    },
    onError: (error) => sayError("Not all answers were taken", error),
    onSettled: (_, __, { asks }) => reread(client, [...new Set(asks.map((ask) => ask.thread))]),
  });
}
