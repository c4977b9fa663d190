import { Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import { useId } from "react";
import { decimal } from "../lib/format";

interface Props {
  label: string;
  used: number;
  total: number;
  format?: (value: number) => string;
  /** A share of something that is no limit: much of it is no warning. */
  isPlain?: boolean;
}

const ALMOST_FULL = 90;

/** How much of something is in use; almost all of it is a warning, in words and in colour. */
export function UtilizationBar({ label, used, total, format = decimal, isPlain = false }: Props) {
  const id = useId();
  const percent = total > 0 ? (100 * used) / total : used ? 100 : 0;
  const text = isPlain ? format(used) : `${format(used)} of ${format(total)}`;
  return (
    <Progress
      id={id}
      title={label}
      value={Math.min(100, percent)}
      label={isPlain ? text : `${text}${percent > 100 ? ", over the limit" : percent >= ALMOST_FULL ? ", almost full" : ""}`}
      valueText={text}
      measureLocation={ProgressMeasureLocation.top}
      variant={isPlain ? undefined : percent > 100 ? "danger" : percent >= ALMOST_FULL ? "warning" : undefined}
      size="sm"
    />
  );
}
