/** Texts that are no job files yet: documents of a cluster, scripts of other schedulers. */
import { Alert, Button } from "@patternfly/react-core";
import { useState } from "react";
import { api, take } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";

interface Props {
  text: string;
  onText: (text: string) => void;
}

/** A cluster's own document: it runs as it is, the form needs a job file. */
export function Manifest({ text, onText }: Props) {
  const [error, setError] = useState<unknown>(null);
  const convert = (): void => {
    take(api.POST("/api/v1/drafts", { body: { yaml: text } })).then((reading) => onText(reading.yaml), setError);
  };
  return (
    <Alert variant="info" isInline component="p" title="This is a document of the cluster, not a job file">
      {error ? <ProblemAlert error={error} /> : null}
      <p>It can be created as it is. To change it in the form, have it written as a job file; comments in it are lost then.</p>
      <Button variant="secondary" onClick={convert}>
        Write it as a job file
      </Button>
    </Alert>
  );
}

/** A text that is no YAML of ours: perhaps a script for Slurm or PBS, which can be converted. */
export function Script({ text, onText }: Props) {
  const [error, setError] = useState<unknown>(null);
  const convert = (): void => {
    setError(null);
    take(api.POST("/api/v1/drafts/convert", { body: { text } })).then((made) => {
      const [first] = made.items;
      const written = first?.texts?.[0];
      if (written) onText(written);
      else setError(new Error(first?.error || "there is no job in it"));
    }, setError);
  };
  return (
    <Alert variant="info" isInline component="p" title="Is this a script for Slurm or PBS, or a document of another system?">
      {error ? <ProblemAlert error={error} /> : null}
      <Button variant="secondary" onClick={convert}>
        Convert it to a job file
      </Button>
    </Alert>
  );
}
