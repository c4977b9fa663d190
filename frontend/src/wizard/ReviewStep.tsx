import {
  Button,
  Checkbox,
  ClipboardCopy,
  ClipboardCopyVariant,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  ExpandableSection,
  Flex,
  FlexItem,
  Form,
  FormGroup,
  InputGroup,
  InputGroupItem,
  TextInput,
} from "@patternfly/react-core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { useCapabilities, useTemplates } from "../api/queries";
import { ProblemAlert } from "../components/ProblemAlert";
import { ChangeTable } from "../job/ChangeTable";
import { useToasts } from "../shell/toasts";
import { values, type Values } from "./document";
import { STEP_LABELS, type Field, type Step } from "./fields";
import { reviewSections } from "./review";
import { asCommand, asPython } from "./snippets";
import type { Draft } from "./useDraft";
import styles from "./wizard.module.css";

interface Props {
  draft: Draft;
  job: Values;
  fields: readonly Field[];
  onEdit: (step: Step) => void;
}

/** The job step by step, what differs from its original, and the same as a command, as Python and as a file. */
export function ReviewStep({ draft, job, fields, onEdit }: Props) {
  return (
    <div className={styles["column"]} data-testid="review">
      {draft.changes.length ? (
        <section aria-labelledby="changes-title">
          <h3 id="changes-title" className={styles["heading"]}>
            Changes from the original
          </h3>
          <ChangeTable changes={draft.changes} label="Changes from the original" />
        </section>
      ) : null}
      {reviewSections(job, fields).map(({ step, entries }) => (
        <section key={step} aria-labelledby={`review-${step}`}>
          <Flex alignItems={{ default: "alignItemsCenter" }}>
            <FlexItem>
              <h3 id={`review-${step}`} className={styles["heading"]}>
                {STEP_LABELS[step]}
              </h3>
            </FlexItem>
            <Button variant="link" isInline onClick={() => onEdit(step)}>
              Edit<span className="pf-v6-screen-reader"> {STEP_LABELS[step]}</span>
            </Button>
          </Flex>
          <DescriptionList isHorizontal isCompact>
            {entries.map(({ label, value, isChanged }) => (
              <DescriptionListGroup key={label} className={isChanged ? styles["changed"] : ""}>
                <DescriptionListTerm>{label}</DescriptionListTerm>
                <DescriptionListDescription className={styles["value"]}>{value}</DescriptionListDescription>
              </DescriptionListGroup>
            ))}
          </DescriptionList>
        </section>
      ))}
      <Copyable title="Copy as CLI command" label="CLI command" text={asCommand(job, draft.text)} />
      <Copyable title="Copy as Python" label="Python code" text={asPython(job)} />
      <Copyable title="Copy as YAML" label="Job file" text={draft.text} />
      {job["name"] ? <SaveTemplate text={draft.text} name={String(job["name"])} /> : null}
    </div>
  );
}

function Copyable({ title, label, text }: { title: string; label: string; text: string }) {
  const [open, setOpen] = useState(false);
  return (
    <ExpandableSection toggleText={title} isExpanded={open} onToggle={(_, next) => setOpen(next)}>
      {open ? (
        <ClipboardCopy isReadOnly isCode isExpanded variant={ClipboardCopyVariant.expansion} hoverTip="Copy" clickTip="Copied" textAriaLabel={label} toggleAriaLabel={label}>
          {text}
        </ClipboardCopy>
      ) : null}
    </ExpandableSection>
  );
}

/** Save the job as it is written now, to start from it another time; on request where the team sees it. */
function SaveTemplate({ text, name }: { text: string; name: string }) {
  const queries = useQueryClient();
  const toast = useToasts();
  const namespace = String(values(text)?.["namespace"] ?? "");
  const shares = useTemplates(namespace).data?.may_share ?? false;
  const keeps = useCapabilities().data?.keeps_templates ?? false;
  const [templateName, setTemplateName] = useState(name);
  const [isShared, setShared] = useState(false);
  const share = isShared || !keeps;
  const save = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/templates", { body: { name: templateName, yaml: text, share, namespace } })),
    onSuccess: async (saved) => {
      await queries.invalidateQueries({ queryKey: ["templates"] });
      toast({ title: `Template ${saved.name} saved` });
    },
  });
  if (!keeps && !shares) return null;
  return (
    <Form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <FormGroup label="Save as template" fieldId="template-name">
        <InputGroup>
          <InputGroupItem isFill>
            <TextInput id="template-name" autoComplete="off" spellCheck={false} value={templateName} onChange={(_, value) => setTemplateName(value)} />
          </InputGroupItem>
          <InputGroupItem>
            <Button variant="secondary" type="submit" isDisabled={!templateName || save.isPending || values(text) === null} isLoading={save.isPending}>
              Save
            </Button>
          </InputGroupItem>
        </InputGroup>
        {shares ? (
          <Checkbox id="share-template" label="Share with the project" isChecked={share} isDisabled={!keeps} onChange={(_, on) => setShared(on)} />
        ) : null}
      </FormGroup>
      {save.error ? <ProblemAlert error={save.error} title="Couldn't save the template" /> : null}
    </Form>
  );
}
