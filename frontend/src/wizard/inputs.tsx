/** The inputs that are more than one box: a number with its slider, GPUs by the usual numbers. */
import { FormSelect, FormSelectOption, InputGroup, InputGroupItem, NumberInput, TextInput } from "@patternfly/react-core";

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
