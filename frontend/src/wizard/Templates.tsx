/** Jobs to start from: chosen before the form, kept after it. */
import { Alert, Button, FormGroup, FormHelperText, HelperText, HelperTextItem, InputGroup, InputGroupItem, TextInput } from "@patternfly/react-core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "../api/client";
import { Choice } from "../components/Choice";
import { ProblemAlert } from "../components/ProblemAlert";

export function TemplateChoice({ value, onChange }: { value: string; onChange: (name: string) => void }) {
  const queries = useQueryClient();
  const templates = useQuery({ queryKey: ["templates"], queryFn: () => take(api.GET("/api/v1/templates")) });
  const remove = useMutation({
    mutationFn: (template: string) => take(api.DELETE("/api/v1/templates/{template}", { params: { path: { template } } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["templates"] });
      onChange("");
    },
  });
  const items = templates.data?.items ?? [];
  const chosen = items.find((one) => one.name === value);
  return (
    <FormGroup label="Template">
      <Choice
        label="Start from a template"
        value={value}
        options={[["", "None: begin with an empty job"], ...items.map((one) => [one.name, `${one.name} (${one.origin})`] as const)]}
        onChange={onChange}
      />
      {chosen?.origin === "own" ? (
        <Button variant="link" isInline onClick={() => remove.mutate(chosen.name)}>
          Remove the template {chosen.name}
        </Button>
      ) : null}
      {remove.error ? <ProblemAlert error={remove.error} /> : null}
      {chosen?.description ? (
        <FormHelperText>
          <HelperText>
            <HelperTextItem>{chosen.description}</HelperTextItem>
          </HelperText>
        </FormHelperText>
      ) : null}
    </FormGroup>
  );
}

/** Keep the job as it is written now, to start from it another time. */
export function KeepTemplate({ text, name }: { text: string; name: string }) {
  const queries = useQueryClient();
  const [called, setCalled] = useState(name);
  const keep = useMutation({
    mutationFn: () => take(api.POST("/api/v1/templates", { body: { name: called, yaml: text } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["templates"] }),
  });
  return (
    <FormGroup label="Keep it as a template" fieldId="template-name">
      <InputGroup>
        <InputGroupItem isFill>
          <TextInput id="template-name" autoComplete="off" spellCheck={false} value={called} onChange={(_, one) => setCalled(one)} />
        </InputGroupItem>
        <InputGroupItem>
          <Button variant="secondary" isDisabled={!called || keep.isPending} onClick={() => keep.mutate()}>
            Keep
          </Button>
        </InputGroupItem>
      </InputGroup>
      {keep.error ? <ProblemAlert error={keep.error} title="It was not kept" /> : null}
      {keep.data ? <Alert isInline isPlain variant="success" component="p" title={`The template ${keep.data.name} is kept`} /> : null}
    </FormGroup>
  );
}
