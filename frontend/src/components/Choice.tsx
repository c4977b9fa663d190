import { FormSelect, FormSelectOption } from "@patternfly/react-core";

interface Props {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

/** One of a few words; the browser's own control, so that every keyboard and screen reader knows it. */
export function Choice({ label, value, options, onChange }: Props) {
  return (
    <FormSelect aria-label={label} value={value} onChange={(_, chosen) => onChange(chosen)}>
      {options.map(([key, words]) => (
        <FormSelectOption key={key} value={key} label={words} />
      ))}
    </FormSelect>
  );
}
