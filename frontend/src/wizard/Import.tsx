/** Texts that are no job files yet: manifests of a cluster, scripts of other schedulers. */
import { Alert, Button } from "@patternfly/react-core";
import { useMutation } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { useCapabilities } from "../api/queries";
import { ProblemAlert } from "../components/ProblemAlert";

interface Props {
  text: string;
  onText: (text: string) => void;
}

/** A Kubernetes manifest: it can be submitted as it is; the form needs a job file. */
export function ManifestNotice({ text, onText }: Props) {
  const isCluster = useCapabilities().data?.cluster ?? false;
  const convert = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/drafts", { body: { yaml: text } })), onSuccess: (reading) => onText(reading.yaml) });
  return (
    <Alert variant="info" isInline component="h2" title="This is a Kubernetes manifest">
      {convert.error ? <ProblemAlert error={convert.error} /> : null}
      <p>{isCluster ? "You can submit it as is. Convert it to edit it in the form (comments are removed)." : "Convert it to a job file to run it on this machine (comments are removed)."}</p>
      <Button variant="secondary" isLoading={convert.isPending} onClick={() => convert.mutate()}>
        Convert to mpijob YAML
      </Button>
    </Alert>
  );
}

/** A text that is no YAML of ours: perhaps a script for Slurm or PBS, which can be converted. */
export function ScriptNotice({ text, onText }: Props) {
  const convert = useMutation({
    mutationFn: async () => {
      const [first] = (await unwrap(api.POST("/api/v1/drafts/convert", { body: { text } }))).items;
      const job = first?.texts?.[0];
      if (!job) throw new Error(first?.error || "No job found in this text");
      return job;
    },
    onSuccess: onText,
  });
  return (
    <Alert variant="info" isInline component="h2" title="This looks like a Slurm or PBS script">
      {convert.error ? <ProblemAlert error={convert.error} title="Couldn't convert the text" /> : null}
      <Button variant="secondary" isLoading={convert.isPending} onClick={() => convert.mutate()}>
        Convert
      </Button>
    </Alert>
  );
}
