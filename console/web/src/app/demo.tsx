import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Clapperboard } from "lucide-react";
import { Problem, perdure } from "@/api/client";
import { keys, useCan, useWrite } from "@/api/queries";
import { Button } from "@/ui/Button";
import { sayError } from "@/ui/Toast";
import { basePath } from "./place";

const demo = "demo";

/** Imports what perdure demo recorded, crash included. The file comes with the console. */
async function addDemo() {
  const recording = await fetch(`${basePath}/demo.ndjson`);
  try {
    await perdure.request("POST /v1/threads/import", { query: { as: demo }, headers: { "Content-Type": "application/x-ndjson" }, body: await recording.blob() });
  } catch (error) {
    if (!(error instanceof Problem && error.type === "exists")) throw error;
  }
}

/** Offers something to see on a store without threads, to those who may import. */
export function OfferDemo() {
  const navigate = useNavigate();
  const client = useQueryClient();
  const mayImport = useCan("admin");
  const add = useWrite({
    mutationFn: addDemo,
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: keys.threads() });
      void navigate({ to: "/threads/$thread", params: { thread: demo } });
    },
    onError: (error) => sayError("The demo could not be added", error),
  });
  if (!mayImport) return null;
  return (
    <div className="mx-auto flex max-w-md flex-col items-center gap-2 px-4 pb-8 text-center">
      <p className="text-soft">Or look at one first: a recording of perdure demo, where a worker is killed in the middle of a sentence and another one goes on.</p>
      <Button icon={<Clapperboard aria-hidden />} busy={add.isPending && "Adding it …"} onClick={() => add.mutate()}>
        Add the demo thread
      </Button>
    </div>
  );
}
