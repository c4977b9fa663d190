/** Where the workers find data: one row a volume; claims and data connections of the project are chosen by name. */
import { Button, Checkbox, FormSelect, FormSelectOption, InputGroup, InputGroupItem, TextInput, type FormSelectProps } from "@patternfly/react-core";
import MinusCircleIcon from "@patternfly/react-icons/dist/esm/icons/minus-circle-icon";
import { isObject, read, write, type Values } from "./document";

export interface Offer {
  readonly name: string;
  readonly text?: string | undefined;
}

const KINDS = ["claim", "path", "nfs", "config", "secret", "s3", "scratch", "shm"];
const SIZED = ["scratch", "shm"];
const called = (one: Offer): string => (one.text ? `${one.text} – ${one.name}` : one.name);

interface OffersProps extends Omit<FormSelectProps, "onChange" | "children" | "ref" | "value"> {
  value: string;
  offers: readonly Offer[];
  onChange: (name: string) => void;
}

/** One of what is offered, by the name that people know; what was written otherwise stays. */
export function Offers({ value, offers, onChange, ...rest }: OffersProps) {
  const known = offers.some((one) => one.name === value);
  return (
    <FormSelect {...rest} value={value} onChange={(_, one) => onChange(one)}>
      {known ? null : <FormSelectOption value={value} label={value || "Choose"} />}
      {offers.map((one) => (
        <FormSelectOption key={one.name} value={one.name} label={called(one)} />
      ))}
    </FormSelect>
  );
}

interface Offered {
  readonly claims: readonly Offer[];
  readonly connections: readonly Offer[];
}

const NONE: Offered = { claims: [], connections: [] };

interface Props {
  id: string;
  text: string;
  job: Values;
  /** What the project has; undefined while that is still being read. */
  offers: Offered | undefined;
  onText: (text: string) => void;
}

export function Volumes({ id, text, job, offers: known, onText }: Props) {
  const offers = known ?? NONE;
  const found = read(job, "volumes");
  const rows = Array.isArray(found) ? found.filter(isObject) : [];
  const set = (next: Values[]): void => onText(write(text, "volumes", next.length ? next : undefined));
  const change = (at: number, key: string, value: unknown): void =>
    set(rows.map((row, index) => (index === at ? without({ ...row, [key]: value }, key) : row)));
  const [claim, connection] = [offers.claims[0], offers.connections[0]];
  return (
    <div className="stack" id={id}>
      {rows.map((row, at) => (
        <Volume
          key={at}
          number={at + 1}
          row={row}
          offers={offers}
          onChange={(key, value) => change(at, key, value)}
          onRemove={() => set(rows.filter((_, index) => index !== at))}
        />
      ))}
      <div>
        <Button variant="link" isInline isDisabled={!known} onClick={() => set([...rows, { mount: "/data", kind: claim ? "claim" : "path", source: claim?.name ?? "" }])}>
          Add a volume
        </Button>
        {connection ? (
          <>
            {" · "}
            <Button variant="link" isInline onClick={() => set([...rows, connected(connection)])}>
              Add a data connection
            </Button>
          </>
        ) : null}
      </div>
    </div>
  );
}

/** A value that says nothing is taken out. */
const without = (row: Values, key: string): Values =>
  row[key] === "" || row[key] === false ? Object.fromEntries(Object.entries(row).filter(([name]) => name !== key || key === "mount")) : row;

const isBucket = (one: Offer): boolean => /\(s3\)/i.test(one.text ?? "");

/** A bucket is a directory of its files; any other connection is what is in its secret. */
const connected = (one: Offer): Values =>
  isBucket(one) ? { mount: "/data", kind: "s3", source: `${one.name}/` } : { mount: "/connection", kind: "secret", source: one.name };

interface VolumeProps {
  number: number;
  row: Values;
  offers: Offered;
  onChange: (key: string, value: unknown) => void;
  onRemove: () => void;
}

function Volume({ number, row, offers, onChange, onRemove }: VolumeProps) {
  const kind = String(row["kind"] ?? "path");
  const source = String(row["source"] ?? "");
  const box = (key: string, label: string, placeholder: string) => (
    <TextInput aria-label={label} placeholder={placeholder} value={String(row[key] ?? "")} onChange={(_, one) => onChange(key, one)} />
  );
  const from = (): JSX.Element => {
    if (SIZED.includes(kind)) return box("size", `Size of volume ${number}`, "10Gi");
    if (kind === "claim" && offers.claims.length)
      return <Offers aria-label={`Source of volume ${number}`} value={source} offers={offers.claims} onChange={(name) => onChange("source", name)} />;
    const buckets = offers.connections.filter(isBucket);
    if (kind !== "s3" || !buckets.length) return box("source", `Source of volume ${number}`, "Source");
    const [name = "", ...folder] = source.split("/");
    return (
      <InputGroup>
        <InputGroupItem isFill>
          <Offers aria-label={`Data connection of volume ${number}`} value={name} offers={buckets} onChange={(one) => onChange("source", [one, ...folder].join("/"))} />
        </InputGroupItem>
        <InputGroupItem isFill>
          <TextInput
            aria-label={`Folder of volume ${number}`}
            placeholder="Folder in the bucket"
            value={folder.join("/")}
            onChange={(_, one) => onChange("source", `${name}/${one}`)}
          />
        </InputGroupItem>
      </InputGroup>
    );
  };
  return (
    <InputGroup>
      <InputGroupItem>
        <FormSelect aria-label={`Kind of volume ${number}`} value={kind} onChange={(_, one) => onChange("kind", one)}>
          {KINDS.map((one) => (
            <FormSelectOption key={one} value={one} label={one} />
          ))}
        </FormSelect>
      </InputGroupItem>
      <InputGroupItem isFill>{from()}</InputGroupItem>
      <InputGroupItem isFill>{box("mount", `Where volume ${number} is seen`, "/data")}</InputGroupItem>
      <InputGroupItem>
        <Checkbox
          id={`volume-${number}-read-only`}
          className="beside-input"
          label="Read only"
          aria-label={`Volume ${number} read only`}
          isChecked={row["read_only"] === true}
          onChange={(_, on) => onChange("read_only", on)}
        />
      </InputGroupItem>
      <InputGroupItem>
        <Button variant="plain" aria-label={`Remove volume ${number}`} icon={<MinusCircleIcon />} onClick={onRemove} />
      </InputGroupItem>
    </InputGroup>
  );
}
