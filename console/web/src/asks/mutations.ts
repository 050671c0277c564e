import { useQueryClient } from "@tanstack/react-query";
import { api, Problem, type Schemas } from "@/api/client";
import { keys, useWrite } from "@/api/queries";
import { type Ask, byThread, closedText, isAnswer, nameOf, pastWord } from "@/lib/ask";
import { backOff, failure, isLost } from "@/lib/lost";
import { say, sayError, sayRefused } from "@/ui/Toast";

export type Reply = Schemas["AnswerAsk"];

/** Whether someone else was faster, or the ask was closed for another reason. */
const tooLate = (error: unknown) => error instanceof Problem && (error.type === "answered" || error.type === "ask-over" || error.type === "no-ask");

/** Reads an ask again that someone else has answered, and says so. */
async function sayTooLate(client: ReturnType<typeof useQueryClient>, ask: string) {
  const now = await client.fetchQuery({ queryKey: keys.ask(ask), queryFn: () => api.get("/v1/asks/{ask}", { path: { ask } }), staleTime: 0 }).catch(() => undefined);
  sayError("Your answer was not taken", now ? `${closedText(now) ?? "The ask is closed"}, before your answer arrived.` : "The ask does not exist any more.");
}

/** Says what became of an answer without a response once the server answers again, and returns the ask as it is then. */
async function sayWhatBecame(client: ReturnType<typeof useQueryClient>, ask: Ask): Promise<Ask | undefined> {
  try {
    const now = await client.fetchQuery({
      queryKey: [...keys.ask(ask.id), "what became of it"],
      queryFn: () => api.get("/v1/asks/{ask}", { path: { ask: ask.id } }),
      staleTime: 0,
      retry: (_, error) => error instanceof Problem && (error.type === "gateway" || error.status === 0 || error.status >= 500),
      retryDelay: backOff,
    });
    client.setQueryData(keys.ask(ask.id), now);
    reread(client, [ask.thread]);
    const how = closedText(now);
    if (how) say(how, nameOf(now));
    else sayRefused("It still waits for an answer", `Decide again about ${nameOf(now)}: one answer counts.`);
    return now;
  } catch {
    return undefined; // requests of the page say why
  }
}

const unsure = (ask: Ask) => `The server has not confirmed what you decided about ${nameOf(ask)}. The page says what became of it once the server answers again.`;

/** Answers an ask. The first answer wins: a later one says whose it was. onTaken is called once it is known that this one was. */
export function useAnswer(ask: Ask, onTaken: (reply: Reply) => void) {
  const client = useQueryClient();
  return useWrite({
    mutationFn: (reply: Reply) => api.post("/v1/asks/{ask}/answer", { path: { ask: ask.id }, body: reply }),
    onSuccess: (answered, reply) => {
      client.setQueryData(keys.ask(ask.id), answered);
      say(pastWord(answered.answer?.decision));
      onTaken(reply);
    },
    onError: (error, reply) => {
      if (tooLate(error)) return sayTooLate(client, ask.id);
      sayError(...failure("The answer was not taken", error, "The answer", unsure(ask)));
      if (isLost(error)) void sayWhatBecame(client, ask).then((now) => now && isAnswer(now, reply) && onTaken(reply));
    },
    onSettled: () => reread(client, [ask.thread]),
  });
}

/** Provides a secret, which only the server keeps. */
export function useProvide(ask: Ask) {
  const client = useQueryClient();
  return useWrite({
    mutationFn: (secret: string) => api.post("/v1/asks/{ask}/secret", { path: { ask: ask.id }, body: { secret } }),
    onSuccess: () => say("Provided"),
    onError: (error) => {
      if (tooLate(error)) return sayTooLate(client, ask.id);
      sayError(...failure("The secret was not taken", error, "The secret", unsure(ask)));
      if (isLost(error)) void sayWhatBecame(client, ask);
    },
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
  return useWrite({
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
    onError: (error) => sayError(...failure("Not all answers were taken", error, "Some answers", "The server has not confirmed them. The asks that are gone once the list is read again were answered; decide again about the others.")),
    onSettled: (_, __, { asks }) => reread(client, [...new Set(asks.map((ask) => ask.thread))]),
  });
}
