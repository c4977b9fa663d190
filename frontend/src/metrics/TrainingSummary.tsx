import { Gallery, Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import type { Curves, JobRow } from "../api/client";
import { useCurves } from "../api/queries";
import { Section } from "../components/Section";
import { useJobPage } from "../job/context";
import { capitalized, significant } from "../lib/format";
import { isNotResponding } from "../lib/phases";
import { position, progressPercent, timeLeft } from "../lib/progress";
import { byImportance, isCurve } from "./curves";
import styles from "./metrics.module.css";
import { Sparkline } from "./Sparkline";

const SHOWN = 4;

/** How far a training is, and the latest value of each of its metrics with the shape of its curve. */
export default function TrainingSummary() {
  const { row, path } = useJobPage();
  const curves = useCurves(row).data;
  const series = byImportance(curves?.series ?? []).slice(0, SHOWN);
  const isUnderway = curves && row.phase !== "Succeeded" && progressPercent(curves) !== null;
  if (!curves || (!series.length && !isUnderway)) return null;
  return (
    <Section title="Training" isCompact actions={<Link to={path("metrics")}>View metrics</Link>}>
      <div className={styles["section"]}>
        {isUnderway ? <TrainingProgress curves={curves} row={row} /> : null}
        {series.length ? (
          <Gallery hasGutter minWidths={{ default: "9rem" }} aria-label="Training metrics" component="ul">
            {series.map((one) => (
              <li key={one.name} className={styles["stat"]}>
                <span className={styles["statName"]}>{one.name}</span>
                <span className={styles["statValue"]}>{significant(one.last)}</span>
                {isCurve(one) ? <Sparkline values={one.values} label={`${one.name}, from ${significant(one.values[0])} to ${significant(one.last)}`} /> : null}
              </li>
            ))}
          </Gallery>
        ) : null}
      </div>
    </Section>
  );
}

function TrainingProgress({ curves, row }: { curves: Curves; row: JobRow }) {
  const percent = progressPercent(curves) ?? 0;
  const left = timeLeft(curves, row.phase === "Running" && !isNotResponding(row));
  return (
    <Progress
      id="training-progress"
      title={capitalized(position(curves)) || "Progress"}
      value={percent}
      size="sm"
      label={[`${percent}%`, left].filter(Boolean).join(" · ")}
      measureLocation={ProgressMeasureLocation.top}
      data-testid="training-progress"
    />
  );
}
