import { Button, InputGroup, InputGroupItem, TextInput } from "@patternfly/react-core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { addressOf, api, take, type JobDetail } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { FINAL } from "../words";

/** Another number of workers for a job whose workers may come and go. */
export function Scale({ detail: { row, spec } }: { detail: JobDetail }) {
  const queries = useQueryClient();
  const [wanted, setWanted] = useState(String(row.workers));
  const scale = useMutation({
    mutationFn: () => take(api.POST("/api/v1/trainjobs/{namespace}/{name}/scale", { params: addressOf(row), body: { workers: Number(wanted) } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["job"] }),
  });
  const { elastic } = spec;
  if (!elastic || FINAL.includes(row.phase) || row.phase === "Deleting") return null;
  return (
    <div className="stack" data-testid="scale">
      <label htmlFor="scale-workers">
        Workers, from {elastic.min_workers ?? 1} to {elastic.max_workers}
      </label>
      <InputGroup>
        <InputGroupItem>
          <TextInput id="scale-workers" type="text" inputMode="numeric" value={wanted} onChange={(_, one) => setWanted(one)} />
        </InputGroupItem>
        <InputGroupItem>
          <Button variant="secondary" isDisabled={!/^\d+$/.test(wanted) || scale.isPending} onClick={() => scale.mutate()}>
            Scale
          </Button>
        </InputGroupItem>
      </InputGroup>
      {scale.error ? <ProblemAlert error={scale.error} title="The number of workers stays" /> : null}
    </div>
  );
}
