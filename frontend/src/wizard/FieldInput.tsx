import {
  Button,
  FormGroup,
  FormGroupLabelHelp,
  FormHelperText,
  HelperText,
  HelperTextItem,
  Label,
  Popover,
  Switch,
  TextArea,
  TextInput,
} from "@patternfly/react-core";
import { useState } from "react";
import { Link } from "react-router-dom";
import type { FieldHelp, Finding } from "../api/client";
import { Combobox } from "../components/Combobox";
import { Feedback } from "../components/Feedback";
import { SelectMenu } from "../components/SelectMenu";
import { usePhone } from "../lib/hooks";
import { values, type Values } from "./document";
import { inputId, shownText, withTyped, type Field } from "./fields";
import { CpuInput, GpusInput, MemoryInput, PairsInput, WorkersInput } from "./inputs";
import { OfferSelect, Volumes, type Offer } from "./Volumes";
import styles from "./wizard.module.css";

interface Props {
  field: Field;
  text: string;
  job: Values;
  command: string;
  mostWorkers: number;
  help: FieldHelp | undefined;
  /** What can be chosen; undefined while that is still being read. */
  offers: readonly Offer[] | undefined;
  volumes: { claims: readonly Offer[]; connections: readonly Offer[] } | undefined;
  finding: Finding | undefined;
  isChanged: boolean;
  note?: string;
  onText: (text: string) => void;
  onCommand: (command: string) => void;
}

/** What was typed stays as it was typed, as long as the job file says the same: a line that is begun is no line yet. */
function useTyped(field: Field, text: string, job: Values, onText: (text: string) => void): [string, (typed: string) => void] {
  const stored = shownText(text, job, field);
  const [typed, setTyped] = useState<{ text: string; stored: string } | null>(null);
  const change = (next: string): void => {
    const document = withTyped(text, field, next);
    setTyped({ text: next, stored: shownText(document, values(document) ?? {}, field) });
    onText(document);
  };
  return [typed && typed.stored === stored ? typed.text : stored, change];
}

const PAIR_LABELS: Record<string, readonly [string, string]> = { secrets: ["Variable", "Source"] };
const TALL = new Set<Field["kind"]>(["pairs", "secrets", "volumes"]);

/** One field with its help; what the server says about it stands below it. */
export function FieldInput({ field, text, job, command, mostWorkers, help, offers, volumes, finding, isChanged, note, onText, onCommand }: Props) {
  const id = inputId(field);
  const [value, change] = useTyped(field, text, job, onText);
  const describedBy = `${id}-help`;
  const isInvalid = Boolean(finding);
  const common = { id, label: field.label, value, isInvalid, describedBy, onChange: change };
  const plain = { id, autoComplete: "off", spellCheck: false, validated: isInvalid ? ("error" as const) : ("default" as const), "aria-describedby": describedBy, "aria-invalid": isInvalid };
  const known = (offers?.length ? offers : (help?.words ?? []).map((name) => ({ name, text: "" }))).map((offer) => ({ value: offer.name, label: offer.name, description: offer.text }));
  const textInput = (): JSX.Element =>
    known.length ? (
      <Combobox {...common} options={known} />
    ) : (
      <TextInput {...plain} value={value} inputMode={field.kind === "number" ? "numeric" : "text"} onChange={(_, next) => change(next)} />
    );
  const input = (): JSX.Element => {
    switch (field.kind) {
      case "command":
        return <TextInput {...plain} value={command} placeholder="python train.py" onChange={(_, line) => onCommand(line)} />;
      case "list":
      case "long":
      case "yaml":
        return <TextArea {...plain} value={value} rows={3} resizeOrientation="vertical" onChange={(_, next) => change(next)} />;
      case "pairs":
      case "secrets": {
        const [keyLabel, valueLabel] = PAIR_LABELS[field.kind] ?? ["Key", "Value"];
        return <PairsInput id={id} label={field.label} path={field.path} text={text} job={job} keyLabel={keyLabel} valueLabel={valueLabel} onText={onText} />;
      }
      case "choice":
        return (
          <SelectMenu
            id={id}
            label={field.label}
            value={value}
            options={(field.options ?? []).map((option) => ({ value: option, label: option || "Default" }))}
            onChange={change}
            aria-describedby={describedBy}
            {...(isInvalid ? { status: "danger" as const } : {})}
          />
        );
      case "switch":
        return <Switch id={id} aria-label={field.label} aria-describedby={describedBy} isChecked={value === "true"} onChange={(_, on) => change(String(on))} />;
      case "project":
        if (offers === undefined) return <TextInput {...plain} value={value} isDisabled />;
        return offers.some((offer) => offer.text) ? <OfferSelect id={id} label={field.label} value={value} offers={offers} onChange={change} /> : textInput();
      case "workers":
        return <WorkersInput {...common} most={mostWorkers} />;
      case "gpus":
        return <GpusInput {...common} />;
      case "cpu":
        return <CpuInput {...common} />;
      case "memory":
        return <MemoryInput {...common} />;
      case "volumes":
        return <Volumes id={id} text={text} job={job} offers={volumes} onText={onText} />;
      default:
        return textInput();
    }
  };
  const words = finding ? [finding.message, finding.hint].filter(Boolean).join(" – ") : (note ?? field.help);
  return (
    <FormGroup
      label={field.label}
      fieldId={id}
      isRequired={Boolean(field.required)}
      {...(TALL.has(field.kind) ? { role: "group" } : {})}
      labelHelp={<FieldHelpButton field={field} help={help} />}
    >
      {input()}
      <FormHelperText>
        <HelperText id={describedBy} aria-live="polite">
          {words ? <HelperTextItem variant={finding ? "error" : "default"}>{words}</HelperTextItem> : null}
          {isChanged ? (
            <Label color="blue" isCompact className={styles["mark"] ?? ""}>
              Changed
            </Label>
          ) : null}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}

const PHONE_WIDTH = "13rem"; // wherever its button is, it stays in the window

/** What a field is for, as `mpijob explain` says it. */
function FieldHelpButton({ field, help }: { field: Field; help: FieldHelp | undefined }) {
  const isPhone = usePhone();
  return (
    <Popover
      {...(isPhone ? { minWidth: PHONE_WIDTH, maxWidth: PHONE_WIDTH } : {})}
      headerContent={field.label}
      headerComponent="h3"
      aria-label={`About ${field.label}`}
      bodyContent={
        <>
          {help ? <p>{help.text}</p> : null}
          {field.help ? <p>{field.help}</p> : null}
          {help?.example ? (
            <p>
              In a job file: <code>{`${field.path.split(".").pop() ?? ""}: ${help.example}`}</code>
            </p>
          ) : null}
          {help?.words.length ? <p>Allowed values: {help.words.join(", ")}</p> : null}
        </>
      }
      footerContent={
        <>
          <Button variant="link" isInline component={(props) => <Link {...props} to={`/learn/fields#about-${field.path}`} target="_blank" />}>
            Job field reference
          </Button>
          <Feedback topic={`field:${field.path}`} />
        </>
      }
    >
      <FormGroupLabelHelp aria-label={`Help for ${field.label}`} />
    </Popover>
  );
}
