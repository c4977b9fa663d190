import { ClipboardCopy, ClipboardCopyVariant, Content, ExpandableSection } from "@patternfly/react-core";
import { useState, type ReactNode } from "react";
import type { Fit, PlanAnswer } from "../api/client";
import { plural } from "../words";
import { Changes } from "./parts";
import { isObject, read, type Difference, type Values } from "./document";
import { join } from "./shell";
import { asCommand, asPython } from "./snippets";
import { KeepTemplate } from "./Templates";

interface Props {
  text: string;
  job: Values;
  plan: PlanAnswer | undefined;
  fit: Fit | undefined;
  changes: readonly Difference[];
  keeps: boolean;
}

/** The job in plain sentences, and the same as a command, as Python and as a file. */
export function Review({ text, job, plan, fit, changes, keeps }: Props) {
  return (
    <div className="stack" data-testid="review">
      <Content component="ul">
        {sentences(job, plan, fit).map((one) => (
          <li key={one}>{one}</li>
        ))}
      </Content>
      <Changes changes={changes} />
      <Same title="Copy as command" label="The same on the command line">
        {asCommand(job, text)}
      </Same>
      <Same title="Copy as Python" label="The same in Python">
        {asPython(job)}
      </Same>
      <Same title="Copy as YAML" label="The same as a job file">
        {text}
      </Same>
      {keeps && job["name"] ? <KeepTemplate text={text} name={String(job["name"])} /> : null}
    </div>
  );
}

function Same({ title, label, children }: { title: string; label: string; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <ExpandableSection toggleText={title} isExpanded={open} onToggle={(_, on) => setOpen(on)}>
      <ClipboardCopy isReadOnly isCode isExpanded variant={ClipboardCopyVariant.expansion} hoverTip="Copy" clickTip="Copied" textAriaLabel={label} toggleAriaLabel={label}>
        {String(children)}
      </ClipboardCopy>
    </ExpandableSection>
  );
}

function sentences(job: Values, plan: PlanAnswer | undefined, fit: Fit | undefined): string[] {
  const command = Array.isArray(job["command"]) ? join(job["command"].map(String)) : "";
  const gpus = Number(read(job, "resources.gpu") ?? 0);
  const workers = Number(read(job, "workers") ?? 4);
  const env = isObject(job["env"]) ? Object.keys(job["env"]) : [];
  const volumes = Array.isArray(job["volumes"]) ? job["volumes"].length : 0;
  const retries = Number(read(job, "retry.limit") ?? 0);
  const made = [
    `The job ${String(job["name"] ?? "without a name")} runs ${command || "nothing yet"} in the project ${String(job["namespace"] ?? "default")}.`,
    `${plural(workers, "worker")} with ${String(read(job, "resources.cpu") ?? "1")} CPU, ${String(read(job, "resources.memory") ?? "1Gi")} of memory and ${gpus ? plural(gpus, "GPU") : "no GPU"} each start ${plural(workers * Number(job["slots"] ?? 1), "rank")}.`,
  ];
  if (job["image"]) made.push(`Its image is ${String(job["image"])}.`);
  if (env.length) made.push(`It gets the ${plural(env.length, "variable")} ${env.join(", ")}.`);
  if (volumes) made.push(`It sees ${plural(volumes, "volume")}.`);
  if (job["queue"]) made.push(`It waits in the queue ${String(job["queue"])}.`);
  made.push(retries ? `When it fails, it is tried again up to ${plural(retries, "time")}.` : "When it fails, it is not tried again.");
  if (job["deadline_seconds"]) made.push(`It is ended after ${String(job["deadline_seconds"])} seconds.`);
  if (plan) made.push(`The plan: ${plan.summary}.`);
  if (fit) made.push(`Room: ${fit.message}.`);
  return made.map((one) => one.replace(/\.\.$/, "."));
}
