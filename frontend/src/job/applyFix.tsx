/** Applying a fix: one click, one confirmation; the copy with the change runs, the job that failed is kept. */
import { Button, Checkbox, Content, Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import { api, jobParams, problemOf, unwrap, type Fix, type JobDetail, type Phase } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { jobPath } from "../lib/links";
import { isFinal } from "../lib/phases";
import { useToasts } from "../shell/toasts";
import { changesOfPatch } from "./changes";
import { ChangeTable } from "./ChangeTable";

/** What the button says: a job that has not ended is submitted anew, and need not run twice. */
export const applyLabel = (phase: Phase): string => (isFinal(phase) ? "Apply and rerun" : "Apply and resubmit");

export function useApplyFix({ row, spec }: JobDetail) {
  const [fix, setFix] = useState<Fix | null>(null);
  const [stops, setStops] = useState(true);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const toast = useToasts();
  const isOver = isFinal(row.phase);
  const stop = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/trainjobs/{namespace}/{name}/cancel", { params: jobParams(row) })),
    onError: (error) => toast({ title: `Couldn't stop ${row.name}`, text: problemOf(error).message, variant: "danger", isSticky: true }),
  });
  const run = useMutation({
    mutationFn: (number: number) => unwrap(api.POST("/api/v1/trainjobs/{namespace}/{name}/clone", { params: jobParams(row), body: { with_fix: number } })),
    onSuccess: (created) => {
      setFix(null);
      if (!isOver && stops) stop.mutate();
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      void navigate(jobPath(created), { state: { created: true } });
    },
  });
  const close = (): void => {
    setFix(null);
    run.reset();
  };
  const dialog = fix ? (
    <Modal variant="small" isOpen onClose={close} aria-labelledby="fix-title" aria-describedby="fix-text">
      <ModalHeader labelId="fix-title" title={isOver ? "Apply fix and rerun?" : "Apply change and resubmit?"} />
      <ModalBody id="fix-text">
        <Content component="p">
          A copy of {row.name} is submitted with this change.{isOver ? ` ${row.name} itself is kept.` : ""}
        </Content>
        <ChangeTable changes={changesOfPatch(spec, fix.patch ?? {})} label="Changes" />
        {isOver ? null : <Checkbox id="stop-original" label={`Stop ${row.name}`} isChecked={stops} onChange={(_, on) => setStops(on)} />}
        {run.error ? <ProblemAlert error={run.error} title="The job was not created" /> : null}
      </ModalBody>
      <ModalFooter>
        <Button isLoading={run.isPending} isDisabled={run.isPending} onClick={() => run.mutate(fix.number)}>
          {applyLabel(row.phase)}
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  ) : null;
  return { ask: setFix, dialog };
}
