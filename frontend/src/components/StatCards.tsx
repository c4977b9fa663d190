import { Card, CardBody } from "@patternfly/react-core";
import type { ReactNode } from "react";
import styles from "./components.module.css";

export interface Stat {
  readonly label: string;
  readonly value: ReactNode;
  readonly note?: ReactNode;
}

/** The few numbers that say how things stand. */
export function StatCards({ label, stats }: { label: string; stats: readonly Stat[] }) {
  return (
    <ul className={styles["stats"]} aria-label={label}>
      {stats.map(({ label: name, value, note }) => (
        <li key={name}>
          <Card isCompact isFullHeight>
            <CardBody className={styles["stat"]}>
              <span className={styles["subtle"]}>{name}</span>
              <span className={styles["number"]}>{value}</span>
              {note ? <span className={styles["subtle"]}>{note}</span> : null}
            </CardBody>
          </Card>
        </li>
      ))}
    </ul>
  );
}
