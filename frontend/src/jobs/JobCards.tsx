import { DataList, DataListAction, DataListCell, DataListItem, DataListItemCells, DataListItemRow } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import { rowKey } from "../api/client";
import { StatusLabel } from "../components/PhaseLabel";
import { ago } from "../lib/format";
import { useNow } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { Reached, RowMenu, type ListProps } from "./JobTable";
import styles from "./jobs.module.css";
import { reasonOf } from "./reason";

/** The list on a phone: name, status and progress of each job. */
export function JobCards({ rows, progress, refusal, onAction }: ListProps) {
  const now = useNow();
  return (
    <DataList aria-label="Training jobs" isCompact>
      {rows.map((row) => {
        const key = rowKey(row);
        const reached = progress.get(`${row.namespace}/${row.name}`);
        return (
          <DataListItem key={key} aria-labelledby={`name-${key}`} data-job={`${row.namespace}/${row.name}`}>
            <DataListItemRow>
              <DataListItemCells
                dataListCells={[
                  <DataListCell key="job" className={styles["card"]}>
                    <Link to={jobPath(row)} id={`name-${key}`} className={styles["cardName"]}>
                      {row.name}
                    </Link>
                    <span className={styles["status"]}>
                      <StatusLabel row={row} isCompact />
                      <span>{ago(row.created, now)}</span>
                    </span>
                    {reasonOf(row) ? <span className={styles["subtle"]}>{reasonOf(row)}</span> : null}
                    {reached ? <Reached row={row} reached={reached} /> : null}
                  </DataListCell>,
                ]}
              />
              <DataListAction id={`actions-${key}`} aria-label={`Actions for ${row.name}`} aria-labelledby={`name-${key} actions-${key}`}>
                <RowMenu row={row} refusal={refusal} onAction={onAction} />
              </DataListAction>
            </DataListItemRow>
          </DataListItem>
        );
      })}
    </DataList>
  );
}
