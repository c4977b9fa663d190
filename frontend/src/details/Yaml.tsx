import { Button, Flex } from "@patternfly/react-core";
import { useState } from "react";
import { Link } from "react-router-dom";
import type { JobDetail } from "../api/client";
import { Choice } from "../components/Choice";
import { at } from "../where";

const FORMS = [["yaml", "Job file"], ["json", "Job file as JSON"], ["trainjob", "TrainJob, for oc create -f"], ["mpijob", "MPIJob v2beta1"], ["sbatch", "Slurm script"]] as const;
const ENDINGS: Record<string, string> = { json: "json", sbatch: "sh" };

/** The job as a file: to read, to copy, to take along in one of its forms, to begin another with. */
export function Yaml({ detail }: { detail: JobDetail }) {
  const { namespace, name, uid } = detail.row;
  const [form, setForm] = useState("yaml");
  const [copied, setCopied] = useState(false);
  const address = at(`/api/v1/trainjobs/${namespace}/${name}/export?format=${form}${uid.includes("/") ? "" : `&uid=${uid}`}`);
  return (
    <div className="stack">
      <Flex>
        <div>
          <Choice label="Download as" value={form} options={FORMS} onChange={setForm} />
        </div>
        <Button component="a" href={address} download={`${name}.${ENDINGS[form] ?? "yaml"}`} variant="secondary">
          Download
        </Button>
        <Button variant="secondary" onClick={() => void navigator.clipboard.writeText(detail.yaml).then(() => setCopied(true))}>
          {copied ? "Copied" : "Copy"}
        </Button>
        <Link to={`/create?from=${encodeURIComponent(`${namespace}/${name}`)}`}>Open in the wizard</Link>
      </Flex>
      <pre className="exactly" tabIndex={0} aria-label="The job as YAML">
        {detail.yaml}
      </pre>
      <p className="under">What looks like a secret is shown as ***, here and in the file; a copy in the wizard has it.</p>
    </div>
  );
}
