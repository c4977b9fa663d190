import {
  FormGroup,
  FormGroupLabelHelp,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  Label,
  Popover,
  TextArea,
  TextInput,
} from "@patternfly/react-core";
import type { FieldHelp, Finding } from "../api/client";
import { shown, typed, type Draft, type Field } from "./draft";

interface Props {
  field: Field;
  draft: Draft;
  command: string;
  help: FieldHelp | undefined;
  finding: Finding | undefined;
  changed: boolean;
  onChange: (next: { job?: Draft; command?: string }) => void;
}

/** One field with its help; what the server says about it stands below it. */
export function FieldInput({ field, draft, command, help, finding, changed, onChange }: Props) {
  const id = `field-${field.path.replace(".", "-")}`;
  const isCommand = field.path === "command";
  const value = isCommand ? command : shown(draft, field);
  const change = (text: string): void => onChange(isCommand ? { command: text } : { job: typed(draft, field, text) });
  const common = {
    id,
    value,
    validated: finding ? ("error" as const) : ("default" as const),
    "aria-describedby": finding ? `${id}-said` : undefined,
    "aria-invalid": Boolean(finding),
  };
  return (
    <FormGroup
      label={field.label}
      fieldId={id}
      isRequired={field.path === "name" || isCommand}
      labelHelp={
        <Popover
          headerContent={field.label}
          headerComponent="h3"
          bodyContent={
            <>
              {help ? <p>{help.text}</p> : null}
              <p>{field.help}</p>
              {help?.example ? (
                <p>
                  In a job file: <code>{`${field.path.split(".").pop() ?? ""}: ${help.example}`}</code>
                </p>
              ) : null}
            </>
          }
          footerContent={<code>mpijob explain {field.path}</code>}
        >
          <FormGroupLabelHelp aria-label={`Help for ${field.label}`} />
        </Popover>
      }
    >
      {field.kind === "lines" ? (
        <TextArea {...common} rows={3} spellCheck={false} resizeOrientation="vertical" onChange={(_, text) => change(text)} />
      ) : field.kind === "choice" ? (
        <FormSelect {...common} onChange={(_, text) => change(text)}>
          {(field.options ?? []).map((one) => (
            <FormSelectOption key={one} value={one} label={one} />
          ))}
        </FormSelect>
      ) : (
        <TextInput
          {...common}
          type="text"
          inputMode={field.kind === "number" ? "numeric" : "text"}
          autoComplete="off"
          spellCheck={false}
          onChange={(_, text) => change(text)}
        />
      )}
      <FormHelperText>
        <HelperText id={`${id}-said`} aria-live="polite">
          {finding ? (
            <HelperTextItem variant="error">
              {finding.message}
              {finding.hint ? ` – ${finding.hint}` : ""}
            </HelperTextItem>
          ) : isCommand ? (
            <HelperTextItem>{field.help}</HelperTextItem>
          ) : null}
          {changed ? (
            <Label color="blue" isCompact>
              changed
            </Label>
          ) : null}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}
