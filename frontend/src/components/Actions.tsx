/** What can be done with jobs: the words, the question before, and the call. */
import { Button, Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import { api, take, type Action } from "../api/client";
import { plural } from "../words";
import { ProblemAlert } from "./ProblemAlert";

type Bulk = Exclude<Action, "clone">;

export const WORDS: Record<Action, string> = {
  cancel: "Cancel",
  suspend: "Suspend",
  resume: "Resume",
  retry: "Retry with same configuration",
  clone: "Clone and modify",
  delete: "Delete",
};

const QUESTIONS: Partial<Record<Action, string>> = {
  cancel: "The processes are asked to end. The record and the logs stay.",
  delete: "The job is ended if it still runs, and it is removed with its files. This cannot be undone. What was recorded of it, its logs too, stays for a while.",
};

const NEEDS: Record<Action, string> = { cancel: "cancel", suspend: "cancel", resume: "create", retry: "create", clone: "create", delete: "delete" };

/** Why the user may not do something in a project, in the server's words; "" where they may. */
export function useRefusals(namespace: string): (action: Action) => string {
  const rights = useQuery({
    queryKey: ["rights", namespace],
    queryFn: () => take(api.GET("/api/v1/rights", { params: { query: namespace ? { namespace } : {} } })),
    staleTime: 30000,
    retry: false,
  });
  return (action) => rights.data?.why[NEEDS[action]] ?? "";
}

interface Wanted {
  readonly action: Bulk;
  readonly jobs: readonly string[];
}

/** Return a function that begins an action, and the question that may have to be answered first. */
export function useActions(done?: (action: Action) => void) {
  const [wanted, setWanted] = useState<Wanted | null>(null);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const act = useMutation({
    mutationFn: async ({ action, jobs }: Wanted) => {
      const answer = await take(api.POST("/api/v1/bulk", { body: { action, jobs: [...jobs] } }));
      const failed = answer.items.filter((item) => item.problem);
      if (failed.length) throw new Error(failed.map((item) => `${item.job}: ${item.problem?.message}`).join("\n"));
    },
    onSettled: () => queries.invalidateQueries(),
    onSuccess: (_, { action }) => {
      setWanted(null);
      done?.(action);
    },
    onError: (_, refused) => setWanted(refused),
  });

  const begin = (action: Action, jobs: readonly string[]): void => {
    if (action === "clone") navigate(`/create?from=${encodeURIComponent(jobs[0] ?? "")}`);
    else if (QUESTIONS[action]) {
      act.reset();
      setWanted({ action, jobs });
    } else act.mutate({ action, jobs });
  };

  const close = (): void => {
    setWanted(null);
    act.reset();
  };

  const question = wanted ? (
    <Modal variant="small" isOpen onClose={close} aria-labelledby="question" aria-describedby="consequence">
      <ModalHeader
        labelId="question"
        title={`${WORDS[wanted.action]} ${wanted.jobs.length === 1 ? wanted.jobs[0] : plural(wanted.jobs.length, "job")}?`}
      />
      <ModalBody id="consequence">
        {QUESTIONS[wanted.action] ?? ""}
        {act.error ? <ProblemAlert error={act.error} title="That did not work" /> : null}
      </ModalBody>
      <ModalFooter>
        <Button
          variant={wanted.action === "delete" ? "danger" : "primary"}
          isLoading={act.isPending}
          isDisabled={act.isPending}
          onClick={() => act.mutate(wanted)}
        >
          {WORDS[wanted.action]}
        </Button>
        <Button variant="link" onClick={close}>
          Keep
        </Button>
      </ModalFooter>
    </Modal>
  ) : null;

  return { begin, question };
}
