import { Card, CardBody, Gallery } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import { useCurves } from "../api/queries";
import { useJobPage } from "../job/context";
import { significant } from "../lib/format";
import { byImportance, isCurve } from "./curves";
import styles from "./metrics.module.css";
import { Sparkline } from "./Sparkline";

const SHOWN = 4;

/** The latest value of each metric of a training, with the shape of its curve. */
export default function TrainingCards() {
  const { row, path } = useJobPage();
  const series = byImportance(useCurves(row).data?.series ?? []).slice(0, SHOWN);
  if (!series.length) return null;
  return (
    <Gallery hasGutter minWidths={{ default: "10rem" }} aria-label="Training metrics" component="ul">
      {series.map((one) => (
        <li key={one.name}>
          <Card isCompact isFullHeight>
            <CardBody className={styles["stat"]}>
              <Link to={path("metrics")} className={styles["statName"]}>
                {one.name}
              </Link>
              <span className={styles["statValue"]}>{significant(one.last)}</span>
              {isCurve(one) ? <Sparkline values={one.values} label={`${one.name}, from ${significant(one.values[0])} to ${significant(one.last)}`} /> : null}
            </CardBody>
          </Card>
        </li>
      ))}
    </Gallery>
  );
}
