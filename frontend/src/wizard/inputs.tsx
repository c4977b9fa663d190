/** The inputs that are more than one box: a number with its slider, an amount with its unit, rows of key and value. */
import { Button, Grid, GridItem, InputGroup, InputGroupItem, InputGroupText, NumberInput, Slider, TextInput } from "@patternfly/react-core";
import MinusCircleIcon from "@patternfly/react-icons/dist/esm/icons/minus-circle-icon";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { useRef, useState, type ClipboardEvent } from "react";
import { SelectMenu } from "../components/SelectMenu";
import type { Values } from "./document";
import { pairsIn, parsePairs, samePairs, withPairs, type Pair } from "./pairs";
import { coresOf, joinMemory, MEMORY_UNITS, splitMemory } from "./quantity";
import styles from "./wizard.module.css";

export interface InputProps {
  id: string;
  label: string;
  value: string;
  isInvalid: boolean;
  describedBy: string;
  onChange: (text: string) => void;
}

const validated = (isInvalid: boolean): "error" | "default" => (isInvalid ? "error" : "default");
const FEWEST = 2;
const USUAL_MOST = 100;

/** A number to type or to step, and a slider over the usual range; both are the same value. */
export function WorkersInput({ id, value, isInvalid, describedBy, most, onChange }: InputProps & { most: number }) {
  const isWhole = /^\d+$/.test(value.trim());
  const number = isWhole ? Number(value) : FEWEST;
  const top = Math.max(FEWEST, Math.min(USUAL_MOST, most));
  return (
    <div className={styles["ranged"]}>
      <NumberInput
        value={(isWhole ? number : value) as number}
        min={1}
        max={most}
        validated={validated(isInvalid)}
        inputProps={{ id, inputMode: "numeric", type: "text", "aria-describedby": describedBy, "aria-invalid": isInvalid, autoComplete: "off" }}
        inputName="workers"
        inputAriaLabel="Workers"
        minusBtnAriaLabel="Decrease workers"
        plusBtnAriaLabel="Increase workers"
        onMinus={() => onChange(String(Math.max(1, number - 1)))}
        onPlus={() => onChange(String(number + 1))}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
      <Slider
        className={styles["slider"]}
        value={Math.min(top, Math.max(FEWEST, number))}
        min={FEWEST}
        max={top}
        onChange={(_, next) => onChange(String(Math.round(next)))}
        thumbAriaLabel={`Workers, ${FEWEST} to ${top}`}
        showBoundaries={false}
      />
    </div>
  );
}

const USUAL_GPUS = ["0", "1", "2", "4", "8"];
const OTHER = "other";

/** The usual numbers to choose from, or any other. */
export function GpusInput({ id, value, isInvalid, describedBy, onChange }: InputProps) {
  const isOther = !USUAL_GPUS.includes(value);
  return (
    <div className={styles["inline"]}>
      <SelectMenu
        id={isOther ? `${id}-usual` : id}
        label="GPUs per worker"
        value={isOther ? OTHER : value}
        options={[...USUAL_GPUS.map((count) => ({ value: count, label: count === "0" ? "None" : count })), { value: OTHER, label: "Other…" }]}
        onChange={(next) => onChange(next === OTHER ? "3" : next)}
        aria-describedby={describedBy}
      />
      {isOther ? (
        <TextInput
          id={id}
          className={styles["amount"]}
          aria-label="GPUs per worker, other number"
          inputMode="numeric"
          value={value}
          validated={validated(isInvalid)}
          aria-describedby={describedBy}
          onChange={(_, text) => onChange(text)}
        />
      ) : null}
    </div>
  );
}

/** Memory as a number with its unit; what is written otherwise is one box. */
export function MemoryInput({ id, label, value, isInvalid, describedBy, onChange }: InputProps) {
  const parts = splitMemory(value);
  const [unit, setUnit] = useState<string>("Gi");
  const shown = parts?.amount ? parts.unit : unit;
  const input = (text: string, change: (next: string) => void) => (
    <TextInput
      id={id}
      className={styles["amount"]}
      inputMode="decimal"
      autoComplete="off"
      spellCheck={false}
      value={text}
      validated={validated(isInvalid)}
      aria-describedby={describedBy}
      aria-invalid={isInvalid}
      onChange={(_, next) => change(next)}
    />
  );
  if (!parts) return input(value, onChange);
  const typed = (text: string): void => onChange(splitMemory(text) && !/^\d+(\.\d+)?$/.test(text) ? text : joinMemory(text, shown));
  return (
    <div className={styles["inline"]}>
      {input(parts.amount, typed)}
      <SelectMenu
        label={`Unit of ${label}`}
        value={shown}
        options={MEMORY_UNITS.map((one) => ({ value: one, label: `${one}B` }))}
        onChange={(next) => {
          setUnit(next);
          if (parts.amount) onChange(joinMemory(parts.amount, next));
        }}
      />
    </div>
  );
}

export function CpuInput({ id, value, isInvalid, describedBy, onChange }: InputProps) {
  return (
    <InputGroup className={styles["amountGroup"]}>
      <InputGroupItem isFill>
        <TextInput
          id={id}
          inputMode="decimal"
          autoComplete="off"
          value={coresOf(value)}
          validated={validated(isInvalid)}
          aria-describedby={describedBy}
          aria-invalid={isInvalid}
          onChange={(_, text) => onChange(text)}
        />
      </InputGroupItem>
      <InputGroupText isPlain>cores</InputGroupText>
    </InputGroup>
  );
}

interface PairsProps {
  id: string;
  label: string;
  path: string;
  text: string;
  job: Values;
  keyLabel: string;
  valueLabel: string;
  onText: (text: string) => void;
}

/** Rows of key and value. Lines of KEY=value that are pasted into a key become rows. */
export function PairsInput({ id, label, path, text, job, keyLabel, valueLabel, onText }: PairsProps) {
  const stored = pairsIn(job, path);
  const [rows, setRows] = useState<readonly Pair[]>(stored);
  const list = useRef<HTMLDivElement>(null);
  const whole = rows.filter(({ key }) => key.trim());
  const [seen, setSeen] = useState(stored);
  if (!samePairs(seen, stored)) {
    setSeen(stored);
    if (!samePairs(whole, stored)) setRows(stored); // changed in the editor
  }
  const change = (next: readonly Pair[]): void => {
    setRows(next);
    onText(withPairs(text, path, next));
  };
  const set = (index: number, part: Partial<Pair>): void => change(rows.map((row, at) => (at === index ? { ...row, ...part } : row)));
  const add = (): void => {
    setRows([...rows, { key: "", value: "" }]);
    window.setTimeout(() => [...(list.current?.querySelectorAll<HTMLInputElement>("input") ?? [])].at(-2)?.focus(), 0);
  };
  const paste = (event: ClipboardEvent, index: number): void => {
    const pasted = parsePairs(event.clipboardData.getData("text"));
    if (!pasted.length) return;
    event.preventDefault();
    change([...rows.slice(0, index), ...pasted, ...rows.slice(index + 1)]);
  };
  return (
    <div id={id} ref={list} role="group" aria-label={label} className={styles["rows"]}>
      {rows.map((row, index) => (
        <Grid key={index} hasGutter>
          <GridItem span={5}>
            <TextInput
              aria-label={`${keyLabel} ${index + 1}`}
              placeholder={keyLabel}
              autoComplete="off"
              spellCheck={false}
              value={row.key}
              onChange={(_, key) => set(index, { key })}
              onPaste={(event) => paste(event, index)}
            />
          </GridItem>
          <GridItem span={6}>
            <TextInput aria-label={`${valueLabel} ${index + 1}`} placeholder={valueLabel} autoComplete="off" spellCheck={false} value={row.value} onChange={(_, value) => set(index, { value })} />
          </GridItem>
          <GridItem span={1}>
            <Button variant="plain" aria-label={`Remove ${row.key || `${label} ${index + 1}`}`} icon={<MinusCircleIcon />} onClick={() => change(rows.filter((_, at) => at !== index))} />
          </GridItem>
        </Grid>
      ))}
      <div>
        <Button variant="link" isInline icon={<PlusCircleIcon />} onClick={add}>
          Add<span className="pf-v6-screen-reader"> to {label}</span>
        </Button>
      </div>
    </div>
  );
}
