import { Button, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, NumberInput } from "@patternfly/react-core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, jobParams, unwrap } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { Section } from "../components/Section";
import { useJobPage } from "../job/context";
import { isFinal } from "../lib/phases";
import { useToasts } from "../shell/toasts";

/** Another number of workers for an elastic job. */
export function Scale() {
  const { detail, row } = useJobPage();
  const queries = useQueryClient();
  const toast = useToasts();
  const [wanted, setWanted] = useState(row.workers);
  const scale = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/trainjobs/{namespace}/{name}/scale", { params: jobParams(row), body: { workers: wanted } })),
    onSuccess: () => toast({ title: `${row.name} scales to ${wanted} workers` }),
    onSettled: () => queries.invalidateQueries({ queryKey: ["job"] }),
  });
  const { elastic } = detail.spec;
  if (!elastic || isFinal(row.phase) || row.phase === "Deleting") return null;
  const [least, most] = [elastic.min_workers ?? 1, elastic.max_workers ?? row.workers];
  return (
    <Section title="Scale" isCompact data-testid="scale">
      <Form
        isHorizontal
        onSubmit={(event) => {
          event.preventDefault();
          scale.mutate();
        }}
      >
        <FormGroup label="Workers" fieldId="scale-workers">
          <NumberInput
            id="scale-workers"
            value={wanted}
            min={least}
            max={most}
            inputAriaLabel={`Workers, from ${least} to ${most}`}
            minusBtnAriaLabel="Decrease workers"
            plusBtnAriaLabel="Increase workers"
            onMinus={() => setWanted(Math.max(least, wanted - 1))}
            onPlus={() => setWanted(Math.min(most, wanted + 1))}
            onChange={(event) => setWanted(Number(event.currentTarget.value))}
          />{" "}
          <Button variant="secondary" type="submit" isDisabled={!Number.isInteger(wanted) || wanted < 1 || scale.isPending} isLoading={scale.isPending}>
            Scale
          </Button>
          <FormHelperText>
            <HelperText>
              <HelperTextItem>
                From {least} to {most} workers
              </HelperTextItem>
            </HelperText>
          </FormHelperText>
        </FormGroup>
      </Form>
      {scale.error ? <ProblemAlert error={scale.error} title="Couldn't scale the job" /> : null}
    </Section>
  );
}
