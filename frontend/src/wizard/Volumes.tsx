/** Where the workers find data: one row for each volume; claims and data connections of the project are chosen by name. */
import { Button, Checkbox, Flex, FormGroup, Grid, GridItem, TextInput } from "@patternfly/react-core";
import MinusCircleIcon from "@patternfly/react-icons/dist/esm/icons/minus-circle-icon";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { SelectMenu } from "../components/SelectMenu";
import { isObject, read, write, type Values } from "./document";
import styles from "./wizard.module.css";

export interface Offer {
  readonly name: string;
  readonly text?: string | undefined;
}

const KINDS = [
  { value: "claim", label: "Volume claim" },
  { value: "s3", label: "S3 bucket" },
  { value: "nfs", label: "NFS export" },
  { value: "path", label: "Path on the machine" },
  { value: "config", label: "ConfigMap" },
  { value: "secret", label: "Secret" },
  { value: "scratch", label: "Scratch space" },
  { value: "shm", label: "Shared memory" },
];
const SIZED = ["scratch", "shm"];

interface OfferProps {
  id?: string;
  label: string;
  value: string;
  offers: readonly Offer[];
  onChange: (name: string) => void;
}

/** One of what is offered, by the name that people know; what was written otherwise stays. */
export function OfferSelect({ id, label, value, offers, onChange }: OfferProps) {
  const isKnown = offers.some((offer) => offer.name === value);
  const options = [
    ...(isKnown ? [] : [{ value, label: value || "Choose…" }]),
    ...offers.map((offer) => ({ value: offer.name, label: offer.text || offer.name, description: offer.text ? offer.name : undefined })),
  ];
  return <SelectMenu {...(id ? { id } : {})} label={label} value={value} options={options} onChange={onChange} isFullWidth />;
}

interface Offered {
  readonly claims: readonly Offer[];
  readonly connections: readonly Offer[];
}

const NOTHING: Offered = { claims: [], connections: [] };

interface Props {
  id: string;
  text: string;
  job: Values;
  /** What the project has; undefined while that is still being read. */
  offers: Offered | undefined;
  onText: (text: string) => void;
}

export function Volumes({ id, text, job, offers: known, onText }: Props) {
  const offers = known ?? NOTHING;
  const found = read(job, "volumes");
  const rows = Array.isArray(found) ? found.filter(isObject) : [];
  const set = (next: Values[]): void => onText(write(text, "volumes", next.length ? next : undefined));
  const change = (at: number, key: string, value: unknown): void => set(rows.map((row, index) => (index === at ? withoutEmpty({ ...row, [key]: value }, key) : row)));
  const [claim, connection] = [offers.claims[0], offers.connections[0]];
  return (
    <div className={styles["rows"]} id={id}>
      {rows.map((row, index) => (
        <VolumeRow key={index} number={index + 1} row={row} offers={offers} onChange={(key, value) => change(index, key, value)} onRemove={() => set(rows.filter((_, at) => at !== index))} />
      ))}
      <Flex>
        <Button
          variant="link"
          isInline
          icon={<PlusCircleIcon />}
          isDisabled={!known}
          onClick={() => set([...rows, { mount: "/data", kind: claim ? "claim" : "path", source: claim?.name ?? "" }])}
        >
          Add volume
        </Button>
        {connection ? (
          <Button variant="link" isInline icon={<PlusCircleIcon />} onClick={() => set([...rows, asVolume(connection)])}>
            Add data connection
          </Button>
        ) : null}
      </Flex>
    </div>
  );
}

/** A value that says nothing is taken out. */
const withoutEmpty = (row: Values, key: string): Values =>
  row[key] === "" || row[key] === false ? Object.fromEntries(Object.entries(row).filter(([name]) => name !== key || key === "mount")) : row;

const isBucket = (offer: Offer): boolean => /\(s3\)/i.test(offer.text ?? "");

/** A bucket is a directory of its files; any other connection is what is in its secret. */
const asVolume = (offer: Offer): Values =>
  isBucket(offer) ? { mount: "/data", kind: "s3", source: `${offer.name}/` } : { mount: "/connection", kind: "secret", source: offer.name };

interface RowProps {
  number: number;
  row: Values;
  offers: Offered;
  onChange: (key: string, value: unknown) => void;
  onRemove: () => void;
}

function VolumeRow({ number, row, offers, onChange, onRemove }: RowProps) {
  const kind = String(row["kind"] ?? "path");
  const source = String(row["source"] ?? "");
  const input = (key: string, label: string, placeholder: string) => (
    <TextInput aria-label={label} placeholder={placeholder} value={String(row[key] ?? "")} onChange={(_, value) => onChange(key, value)} />
  );
  const from = (): JSX.Element => {
    if (SIZED.includes(kind)) return input("size", `Size of volume ${number}`, "10Gi");
    if (kind === "claim" && offers.claims.length)
      return <OfferSelect label={`Source of volume ${number}`} value={source} offers={offers.claims} onChange={(name) => onChange("source", name)} />;
    const buckets = offers.connections.filter(isBucket);
    if (kind !== "s3" || !buckets.length) return input("source", `Source of volume ${number}`, "Source");
    const [name = "", ...folder] = source.split("/");
    return (
      <div className={styles["rows"]}>
        <OfferSelect label={`Data connection of volume ${number}`} value={name} offers={buckets} onChange={(next) => onChange("source", [next, ...folder].join("/"))} />
        <TextInput
          aria-label={`Folder of volume ${number}`}
          placeholder="Folder in the bucket"
          value={folder.join("/")}
          onChange={(_, next) => onChange("source", `${name}/${next}`)}
        />
      </div>
    );
  };
  return (
    <FormGroup role="group" label={`Volume ${number}`} className={styles["volume"]}>
      <Grid hasGutter>
        <GridItem span={12} md={3}>
          <SelectMenu label={`Type of volume ${number}`} value={kind} options={KINDS} onChange={(next) => onChange("kind", next)} isFullWidth />
        </GridItem>
        <GridItem span={12} md={4}>
          {from()}
        </GridItem>
        <GridItem span={12} md={3}>
          {input("mount", `Mount path of volume ${number}`, "/data")}
        </GridItem>
        <GridItem span={12} md={2}>
          <Flex flexWrap={{ default: "nowrap" }} alignItems={{ default: "alignItemsCenter" }}>
            <Checkbox id={`volume-${number}-read-only`} label="Read only" aria-label={`Volume ${number} read only`} isChecked={row["read_only"] === true} onChange={(_, on) => onChange("read_only", on)} />
            <Button variant="plain" aria-label={`Remove volume ${number}`} icon={<MinusCircleIcon />} onClick={onRemove} />
          </Flex>
        </GridItem>
      </Grid>
    </FormGroup>
  );
}
