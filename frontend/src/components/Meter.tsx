import { Progress, ProgressMeasureLocation } from "@patternfly/react-core";

interface Props {
  word: string;
  used: number;
  most: number;
  words?: (value: number) => string;
}

export const amount = (value: number): string => String(Number(value.toFixed(2)));

/** How much of something is in use; nearly all is a warning, in words and in colour. */
export function Meter({ word, used, most, words = amount }: Props) {
  const share = most > 0 ? (100 * used) / most : used ? 100 : 0;
  return (
    <Progress
      id={`use-${word.replace(/\W+/g, "-")}`}
      title={word}
      value={Math.min(100, share)}
      label={`${words(used)} of ${words(most)}${share >= 90 ? ", nearly all" : ""}`}
      valueText={`${words(used)} of ${words(most)}`}
      measureLocation={ProgressMeasureLocation.top}
      variant={share > 100 ? "danger" : share >= 90 ? "warning" : undefined}
      size="sm"
    />
  );
}
