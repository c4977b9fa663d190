/** Applying a fix: one click, one confirmation; the copy with the change runs, the job that failed is kept. */
import { Button, Content, Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import { api, jobParams, unwrap, type Fix, type JobDetail } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { jobPath } from "../lib/links";
import { changesOfPatch } from "./changes";
import { ChangeTable } from "./ChangeTable";

export function useApplyFix({ row, spec }: JobDetail) {
  const [fix, setFix] = useState<Fix | null>(null);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const run = useMutation({
    mutationFn: (number: number) => unwrap(api.POST("/api/v1/trainjobs/{namespace}/{name}/clone", { params: jobParams(row), body: { with_fix: number } })),
    onSuccess: (created) => {
      setFix(null);
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
      <ModalHeader labelId="fix-title" title="Apply fix and rerun?" />
      <ModalBody id="fix-text">
        <Content component="p">A copy of {row.name} starts with this change. {row.name} itself is kept.</Content>
        <ChangeTable changes={changesOfPatch(spec, fix.patch ?? {})} label="Changes" />
        {run.error ? <ProblemAlert error={run.error} title="The job was not created" /> : null}
      </ModalBody>
      <ModalFooter>
        <Button isLoading={run.isPending} isDisabled={run.isPending} onClick={() => run.mutate(fix.number)}>
          Apply and rerun
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  ) : null;
  return { ask: setFix, dialog };
}
