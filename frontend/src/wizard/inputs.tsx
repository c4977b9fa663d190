/** The inputs that are more than one box: a number with its slider, GPUs by the usual numbers, volumes row by row. */
import { Button, FormSelect, FormSelectOption, InputGroup, InputGroupItem, NumberInput, TextInput } from "@patternfly/react-core";
import MinusCircleIcon from "@patternfly/react-icons/dist/esm/icons/minus-circle-icon";
import { isObject, read, write, type Values } from "./document";

export interface Offer {
  readonly name: string;
  readonly text?: string | undefined;
}

interface Common {
  id: string;
  value: string;
  validated: "error" | "default";
  "aria-describedby": string;
  "aria-invalid": boolean;
  autoComplete: string;
  spellCheck: boolean;
  onChange: (words: string) => void;
}

const FEWEST = 2;

/** A number to type or to step, and a slider over the usual range; both are the same value. */
export function Workers({ id, value, validated, most, onChange, ...rest }: Common & { most: number }) {
  const number = Number(value);
  const known = /^\d+$/.test(value.trim());
  const top = Math.max(FEWEST, Math.min(100, most));
  return (
    <div className="ranged">
      <NumberInput
        value={(known ? number : value) as number}
        min={1}
        max={most}
        validated={validated}
        inputProps={{ id, inputMode: "numeric", type: "text", ...rest }}
        inputName="workers"
        inputAriaLabel="Workers"
        minusBtnAriaLabel="One worker less"
        plusBtnAriaLabel="One worker more"
        onMinus={() => onChange(String(Math.max(1, (known ? number : FEWEST) - 1)))}
        onPlus={() => onChange(String((known ? number : FEWEST) + 1))}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
      <input
        type="range"
        aria-label={`Workers, ${FEWEST} to ${top}`}
        min={FEWEST}
        max={top}
        value={known ? number : FEWEST}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    </div>
  );
}

const USUAL = ["0", "1", "2", "4", "8"];

/** The usual numbers to choose from, or one's own. */
export function Gpus({ id, value, validated, onChange, ...rest }: Common) {
  const own = !USUAL.includes(value);
  return (
    <InputGroup>
      <InputGroupItem isFill>
        <FormSelect
          id={id}
          value={own ? "own" : value}
          validated={validated}
          aria-describedby={rest["aria-describedby"]}
          onChange={(_, one) => onChange(one === "own" ? "3" : one)}
        >
          {USUAL.map((one) => (
            <FormSelectOption key={one} value={one} label={one === "0" ? "none" : one} />
          ))}
          <FormSelectOption value="own" label="another number" />
        </FormSelect>
      </InputGroupItem>
      {own ? (
        <InputGroupItem>
          <TextInput aria-label="GPUs per worker, another number" type="text" inputMode="numeric" value={value} validated={validated} onChange={(_, one) => onChange(one)} {...rest} />
        </InputGroupItem>
      ) : null}
    </InputGroup>
  );
}

const KINDS = ["claim", "path", "nfs", "config", "secret", "scratch", "shm"];

interface VolumesProps {
  id: string;
  text: string;
  job: Values;
  offers: { claims: readonly Offer[]; connections: readonly Offer[] };
  onText: (text: string) => void;
}

/** Where the workers find data: one row a volume, claims and data connections of the project offered by name. */
export function Volumes({ id, text, job, offers, onText }: VolumesProps) {
  const found = read(job, "volumes");
  const rows = Array.isArray(found) ? found.filter(isObject) : [];
  const set = (next: Values[]): void => onText(write(text, "volumes", next.length ? next : undefined));
  const change = (at: number, key: string, value: string): void =>
    set(rows.map((row, index) => (index === at ? { ...row, [key]: value } : row)));
  const offered = (kind: string): readonly Offer[] => (kind === "claim" ? offers.claims : kind === "secret" ? offers.connections : []);
  return (
    <div className="stack" id={id}>
      {rows.map((row, at) => {
        const kind = String(row["kind"] ?? "path");
        return (
          <InputGroup key={at}>
            <InputGroupItem>
              <FormSelect aria-label={`Kind of volume ${at + 1}`} value={kind} onChange={(_, one) => change(at, "kind", one)}>
                {KINDS.map((one) => (
                  <FormSelectOption key={one} value={one} label={one} />
                ))}
              </FormSelect>
            </InputGroupItem>
            <InputGroupItem isFill>
              <TextInput
                aria-label={`Source of volume ${at + 1}`}
                placeholder="Source"
                value={String(row["source"] ?? "")}
                onChange={(_, one) => change(at, "source", one)}
                list={`${id}-${at}`}
              />
              <datalist id={`${id}-${at}`}>
                {offered(kind).map((one) => (
                  <option key={one.name} value={one.name}>
                    {one.text || one.name}
                  </option>
                ))}
              </datalist>
            </InputGroupItem>
            <InputGroupItem isFill>
              <TextInput
                aria-label={`Where volume ${at + 1} is seen`}
                placeholder="/data"
                value={String(row["mount"] ?? "")}
                onChange={(_, one) => change(at, "mount", one)}
              />
            </InputGroupItem>
            <InputGroupItem>
              <Button
                variant="plain"
                aria-label={`Remove volume ${at + 1}`}
                icon={<MinusCircleIcon />}
                onClick={() => set(rows.filter((_, index) => index !== at))}
              />
            </InputGroupItem>
          </InputGroup>
        );
      })}
      <div>
        <Button
          variant="link"
          isInline
          onClick={() => set([...rows, { mount: "/data", kind: offers.claims.length ? "claim" : "path", source: offers.claims[0]?.name ?? "" }])}
        >
          Add a volume
        </Button>
        {offers.connections.length ? (
          <>
            {" · "}
            <Button
              variant="link"
              isInline
              onClick={() => set([...rows, { mount: "/connection", kind: "secret", source: offers.connections[0]?.name ?? "" }])}
            >
              Add a data connection
            </Button>
          </>
        ) : null}
      </div>
    </div>
  );
}
