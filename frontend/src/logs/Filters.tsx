import { Button, SearchInput, TextInput } from "@patternfly/react-core";
import { useEffect, useState } from "react";
import { Choice } from "../components/Choice";
import { useRested } from "../hooks";
import { clock } from "../words";

interface Props {
  params: URLSearchParams;
  onChange: (changes: Record<string, string>) => void;
  find: string;
  onFind: (words: string) => void;
  found: string;
  onHit: (step: number) => void;
  begun: number;
  attempts: number;
}

const MINUTE = 60;
const TIMES = [["", "Any time"], ["5", "Last 5 minutes"], ["60", "Last hour"], ["first", "First 5 minutes"]] as const;

/** What is typed goes into the address once it rests there. */
function Typed({ name, value, onChange, children }: { name: string; value: string; onChange: (changes: Record<string, string>) => void; children: (words: string, set: (words: string) => void) => JSX.Element }) {
  const [words, setWords] = useState(value);
  const rested = useRested(words, 300);
  useEffect(() => {
    if (rested !== value) onChange({ [name]: rested });
  }, [rested]); // eslint-disable-line -- only typing changes the address
  useEffect(() => setWords(value), [value]);
  return children(words, setWords);
}

/** Which lines: who, how serious, when, and which words; the server chooses, the address keeps it. */
export function Filters({ params, onChange, find, onFind, found, onHit, begun, attempts }: Props) {
  const workers = params.get("workers") ?? "";
  const [since, until] = [params.get("since") ?? "", params.get("until") ?? ""];
  const when = (word: string): void => {
    onChange({
      until: word === "first" ? String(Math.ceil(begun + 5 * MINUTE)) : "",
      since: Number(word) ? String(Math.floor(Date.now() / 1000 - Number(word) * MINUTE)) : "",
    });
  };
  return (
    <div className="filters" role="group" aria-label="Which lines">
      <Choice
        label="Who"
        value={params.get("role") ?? ""}
        options={[["", "Everybody"], ["launcher", "Launcher"], ["worker", "Workers"], ["rank", "Ranks"]]}
        onChange={(value) => onChange({ role: value })}
      />
      <Choice
        label="Level"
        value={params.get("level") ?? ""}
        options={[["", "Every level"], ["info", "Info and up"], ["warning", "Warnings and errors"], ["error", "Errors"]]}
        onChange={(value) => onChange({ level: value })}
      />
      <Choice label="When" value={since || until ? "own" : ""} options={since || until ? [...TIMES, ["own", "As chosen"]] : TIMES} onChange={when} />
      {attempts > 1 ? (
        <Choice
          label="Attempt"
          value={params.get("attempt") ?? ""}
          options={[["", "This attempt"], ...Array.from({ length: attempts }, (_, at) => [String(at + 1), `Attempt ${at + 1}`] as const)]}
          onChange={(value) => onChange({ attempt: value })}
        />
      ) : null}
      <Typed name="ranks" value={params.get("ranks") ?? ""} onChange={onChange}>
        {(words, set) => <TextInput aria-label="Ranks, for example 0-3,5" placeholder="Ranks: 0-3,5" value={words} onChange={(_, value) => set(value)} />}
      </Typed>
      <Typed name="regex" value={params.get("regex") ?? ""} onChange={onChange}>
        {(words, set) => (
          <SearchInput
            aria-label="Show only lines that match this regular expression"
            placeholder="Filter (regex)"
            value={words}
            onChange={(_, value) => set(value)}
            onClear={() => set("")}
          />
        )}
      </Typed>
      <SearchInput
        aria-label="Find in the lines shown"
        placeholder="Find, or /regex/"
        value={find}
        onChange={(_, value) => onFind(value)}
        onClear={() => onFind("")}
        resultsCount={found || undefined}
        onNextClick={() => onHit(1)}
        onPreviousClick={() => onHit(-1)}
        onSearch={() => onHit(1)}
      />
      {workers ? (
        <Button variant="link" onClick={() => onChange({ workers: "" })}>
          worker {workers} only – show all
        </Button>
      ) : null}
      {since || until ? (
        <Button
          variant="link"
          onClick={() => onChange({ since: "", until: "" })}
        >
          {since ? `from ${clock(Number(since) * 1000).slice(0, 8)} ` : ""}
          {until ? `to ${clock(Number(until) * 1000).slice(0, 8)} ` : ""}– any time
        </Button>
      ) : null}
    </div>
  );
}
