/** What can be done with jobs: its name, the question before it, the call, and the message after it. */
import { Button, Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import { api, ApiError, unwrap, type Action, type JobRow } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { plural } from "../lib/format";
import { clonePath } from "../lib/links";
import { useToasts } from "../shell/toasts";

export type BulkAction = Exclude<Action, "clone">;

export const ACTION_LABELS: Record<Action, string> = {
  cancel: "Stop",
  suspend: "Suspend",
  resume: "Resume",
  retry: "Retry",
  clone: "Clone",
  delete: "Delete",
};

const DONE: Record<BulkAction, string> = {
  cancel: "stopped",
  suspend: "suspended",
  resume: "resumed",
  retry: "started again",
  delete: "deleted",
};

interface Question {
  readonly text: string;
  /** The same of several jobs. */
  readonly plural: string;
  readonly confirm: string;
  readonly decline: string;
}

const RETENTION = "Records and logs are kept for the retention time of the job (default: 30 days for records, 7 days for logs).";

const QUESTIONS: Partial<Record<BulkAction, Question>> = {
  cancel: {
    text: "Running processes will be stopped. Logs and job history are kept.",
    plural: "Running processes will be stopped. Logs and job history are kept.",
    confirm: "Stop job",
    decline: "Keep running",
  },
  suspend: {
    text: "Running processes will be stopped and their resources released. When you resume the job, it starts again from its last checkpoint, or from the beginning if it writes none.",
    plural: "Running processes will be stopped and their resources released. When you resume the jobs, they start again from their last checkpoints, or from the beginning if they write none.",
    confirm: "Suspend job",
    decline: "Keep running",
  },
  delete: {
    text: `The job will be stopped if it is running, and its files deleted. You can't undo this. ${RETENTION}`,
    plural: `Jobs that are running will be stopped, and the files of all these jobs deleted. You can't undo this. ${RETENTION}`,
    confirm: "Delete",
    decline: "Cancel",
  },
};

/** The right that each action needs. */
const RIGHTS: Record<Action, string> = { cancel: "cancel", suspend: "cancel", resume: "create", retry: "create", clone: "create", delete: "delete" };

/** Why the user may not do something in a project, in the server's words; "" where they may. */
export function useRefusals(namespace: string): (action: Action) => string {
  const rights = useQuery({
    queryKey: ["rights", namespace],
    queryFn: () => unwrap(api.GET("/api/v1/rights", { params: { query: namespace ? { namespace } : {} } })),
    staleTime: 30000,
    retry: false,
  });
  return (action) => rights.data?.why[RIGHTS[action]] ?? "";
}

interface Wanted {
  readonly action: BulkAction;
  readonly rows: readonly JobRow[];
}

/** Whether an action is asked about first: what stops a running job, and what removes one. */
const asksFirst = ({ action, rows }: Wanted): boolean =>
  action === "suspend" ? rows.some((row) => row.phase !== "Queued") : Boolean(QUESTIONS[action]);

const titleOf = ({ action, rows }: Wanted): string => `${ACTION_LABELS[action]} ${rows.length === 1 ? rows[0]?.name : plural(rows.length, "job")}?`;

/** Return a function that begins an action, and the dialog that may have to be confirmed first. */
export function useJobActions(onDone?: (action: Action) => void) {
  const [wanted, setWanted] = useState<Wanted | null>(null);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const toast = useToasts();
  const act = useMutation({
    mutationFn: async ({ action, rows }: Wanted) => {
      const answer = await unwrap(api.POST("/api/v1/bulk", { body: { action, jobs: rows.map((row) => `${row.namespace}/${row.name}`) } }));
      const problems = answer.items.flatMap((item) => (item.problem ? [{ job: item.job, problem: item.problem }] : []));
      const [first] = problems;
      if (first && problems.length === 1) throw new ApiError(409, first.problem);
      if (first) throw new ApiError(409, { ...first.problem, message: problems.map(({ job, problem }) => `${job}: ${problem.message}`).join("\n") });
    },
    onSettled: () => queries.invalidateQueries(),
    onSuccess: (_, { action, rows }) => {
      setWanted(null);
      toast({ title: `${rows.length === 1 ? rows[0]?.name : plural(rows.length, "job")} ${DONE[action]}`, variant: "success" });
      onDone?.(action);
    },
    onError: (error, refused) => {
      if (!asksFirst(refused)) toast({ title: `Couldn't ${ACTION_LABELS[refused.action].toLowerCase()} the job`, text: error.message, variant: "danger", isSticky: true });
    },
  });

  const begin = (action: Action, rows: readonly JobRow[]): void => {
    const [first] = rows;
    if (!first) return;
    if (action === "clone") void navigate(clonePath(first));
    else if (asksFirst({ action, rows })) {
      act.reset();
      setWanted({ action, rows });
    } else act.mutate({ action, rows });
  };

  const close = (): void => {
    setWanted(null);
    act.reset();
  };

  const question = wanted ? QUESTIONS[wanted.action] : undefined;
  const dialog =
    wanted && question ? (
      <Modal variant="small" isOpen onClose={close} aria-labelledby="action-title" aria-describedby="action-text">
        <ModalHeader labelId="action-title" title={titleOf(wanted)} {...(wanted.action === "delete" ? { titleIconVariant: "warning" as const } : {})} />
        <ModalBody id="action-text">
          {wanted.rows.length > 1 ? question.plural : question.text}
          {act.error ? <ProblemAlert error={act.error} title="Action failed" /> : null}
        </ModalBody>
        <ModalFooter>
          <Button
            variant={wanted.action === "suspend" ? "primary" : "danger"}
            isLoading={act.isPending}
            isDisabled={act.isPending}
            onClick={() => act.mutate(wanted)}
          >
            {wanted.rows.length > 1 ? question.confirm.replace(/ job$/, " jobs") : question.confirm}
          </Button>
          <Button variant="link" onClick={close}>
            {question.decline}
          </Button>
        </ModalFooter>
      </Modal>
    ) : null;

  return { begin, dialog };
}
