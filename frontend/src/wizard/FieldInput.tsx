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
  Switch,
  TextArea,
  TextInput,
} from "@patternfly/react-core";
import { useState } from "react";
import type { FieldHelp, Finding } from "../api/client";
import { Helpful } from "../components/Helpful";
import { values, type Values } from "./document";
import { idOf, shown, typed, type Field } from "./fields";
import { Gpus, Workers } from "./inputs";
import { Offers, Volumes, type Offer } from "./Volumes";

interface Props {
  field: Field;
  text: string;
  job: Values;
  command: string;
  most: number;
  help: FieldHelp | undefined;
  /** What can be chosen; undefined while that is still being read. */
  offers: readonly Offer[] | undefined;
  volumes: { claims: readonly Offer[]; connections: readonly Offer[] } | undefined;
  finding: Finding | undefined;
  changed: boolean;
  onText: (text: string) => void;
  onCommand: (command: string) => void;
}

const QUIET = new Set<Field["kind"]>(["text", "word", "choice", "project"]); // their help is behind the question mark

/** What was typed stays as it was typed, as long as the job file says the same: a line that is begun is no line yet. */
function useTyped(field: Field, text: string, job: Values, onText: (text: string) => void): [string, (words: string) => void] {
  const said = shown(text, job, field);
  const [raw, setRaw] = useState<{ words: string; said: string } | null>(null);
  const change = (words: string): void => {
    const next = typed(text, field, words);
    setRaw({ words, said: shown(next, values(next) ?? {}, field) });
    onText(next);
  };
  return [raw && raw.said === said ? raw.words : said, change];
}

/** One field with its help; what the server says about it stands below it. */
export function FieldInput({ field, text, job, command, most, help, offers, volumes, finding, changed, onText, onCommand }: Props) {
  const id = idOf(field);
  const [words, change] = useTyped(field, text, job, onText);
  const common = {
    id,
    value: words,
    validated: finding ? ("error" as const) : ("default" as const),
    "aria-describedby": `${id}-said`,
    "aria-invalid": Boolean(finding),
  };
  const plain = { ...common, autoComplete: "off", spellCheck: false };
  const box = (): JSX.Element => {
    const known = offers?.length ? offers : (help?.words ?? []).map((name) => ({ name, text: "" }));
    return (
      <>
        <TextInput
          {...plain}
          type="text"
          inputMode={field.kind === "number" ? "numeric" : "text"}
          onChange={(_, one) => change(one)}
          {...(known.length ? { list: `${id}-offers` } : {})}
        />
        {known.length ? (
          <datalist id={`${id}-offers`}>
            {known.map((one) => (
              <option key={one.name} value={one.name}>
                {one.text || one.name}
              </option>
            ))}
          </datalist>
        ) : null}
      </>
    );
  };
  const input = (): JSX.Element => {
    switch (field.kind) {
      case "command":
        return <TextInput {...plain} type="text" value={command} onChange={(_, line) => onCommand(line)} />;
      case "lines":
      case "list":
      case "long":
      case "yaml":
      case "secrets":
        return <TextArea {...plain} rows={3} resizeOrientation="vertical" onChange={(_, one) => change(one)} />;
      case "choice":
        return (
          <FormSelect {...common} onChange={(_, one) => change(one)}>
            {(field.options ?? []).map((one) => (
              <FormSelectOption key={one} value={one} label={one || "as usual"} />
            ))}
          </FormSelect>
        );
      case "switch":
        return <Switch id={id} aria-label={field.label} aria-describedby={`${id}-said`} isChecked={words === "true"} onChange={(_, on) => change(String(on))} />;
      case "project":
        if (offers === undefined) return <TextInput {...plain} type="text" isDisabled />;
        if (offers.some((one) => one.text)) return <Offers {...common} value={words} offers={offers} onChange={change} />;
        return box();
      case "workers":
        return <Workers {...plain} most={most} onChange={change} />;
      case "gpus":
        return <Gpus {...plain} onChange={change} />;
      case "volumes":
        return <Volumes id={id} text={text} job={job} offers={volumes} onText={onText} />;
      default:
        return box();
    }
  };
  return (
    <FormGroup
      label={field.label}
      fieldId={id}
      isRequired={Boolean(field.required)}
      role={field.kind === "volumes" ? "group" : undefined}
      labelHelp={
        <Popover
          headerContent={field.label}
          headerComponent="h3"
          aria-label={`What ${field.label} is for`}
          bodyContent={
            <>
              {help ? <p>{help.text}</p> : null}
              {field.help ? <p>{field.help}</p> : null}
              {help?.example ? (
                <p>
                  In a job file: <code>{`${field.path.split(".").pop() ?? ""}: ${help.example}`}</code>
                </p>
              ) : null}
              {help?.words.length ? <p>One of: {help.words.join(", ")}</p> : null}
            </>
          }
          footerContent={
            <>
              <a href={`/learn#about-${field.path}`} target="_blank" rel="noreferrer">
                All fields
              </a>
              {" · "}
              <code>mpijob explain {field.path}</code>
              <Helpful about={`field:${field.path}`} />
            </>
          }
        >
          <FormGroupLabelHelp aria-label={`Help for ${field.label}`} />
        </Popover>
      }
    >
      {input()}
      <FormHelperText>
        <HelperText id={`${id}-said`} aria-live="polite">
          {finding ? (
            <HelperTextItem variant="error">
              {finding.message}
              {finding.hint ? ` – ${finding.hint}` : ""}
            </HelperTextItem>
          ) : field.help && !QUIET.has(field.kind) ? (
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
