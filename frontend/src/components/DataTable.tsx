import { Button } from "@patternfly/react-core";
import DownloadIcon from "@patternfly/react-icons/dist/esm/icons/download-icon";
import { Table, Tbody, Td, Th, Thead, Tr, type ThProps } from "@patternfly/react-table";
import { useState, type ReactNode } from "react";
import { toCsv } from "../lib/csv";
import styles from "./components.module.css";

type Cell = ReactNode;

interface Props {
  label: string;
  columns: readonly string[];
  rows: readonly (readonly Cell[])[];
  /** The values by which the rows are sorted, column by column; without them rows stay as they come. */
  sortBy?: readonly (readonly (string | number)[])[];
  /** The name of the CSV file, where the rows can be downloaded. */
  file?: string;
  numeric?: readonly string[];
}

const SHORT = 24;
const isShort = (cell: Cell, isNumeric: boolean): boolean => isNumeric || (typeof cell === "string" && cell.length <= SHORT) || typeof cell === "number";

const text = (cell: Cell): string => (typeof cell === "string" || typeof cell === "number" ? String(cell) : "");

/** Rows of values; sorted by a click on a column, and downloaded as CSV, where that is wanted. */
export function DataTable({ label, columns, rows, sortBy, file, numeric = [] }: Props) {
  const [sort, setSort] = useState<{ index: number; direction: "asc" | "desc" } | null>(null);
  const order = rows.map((_, index) => index);
  if (sort && sortBy)
    order.sort((a, b) => {
      const [one, other] = [sortBy[a]?.[sort.index] ?? "", sortBy[b]?.[sort.index] ?? ""];
      const sign = sort.direction === "asc" ? 1 : -1;
      return sign * (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other)));
    });
  const sorting = (index: number): ThProps["sort"] =>
    sortBy
      ? { columnIndex: index, sortBy: sort ?? {}, onSort: (_event, _index, direction) => setSort({ index, direction }) }
      : undefined;
  const download = (): void => {
    const address = URL.createObjectURL(new Blob([toCsv([columns, ...rows.map((row, index) => row.map((cell, at) => text(cell) || String(sortBy?.[index]?.[at] ?? "")))])], { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href: address, download: `${file ?? "table"}.csv` }).click();
    URL.revokeObjectURL(address);
  };
  return (
    <>
      <div className={styles["scroll"]}>
      <Table aria-label={label} variant="compact" gridBreakPoint="grid-md" className={styles["dense"] ?? ""}>
        <Thead>
          <Tr>
            {columns.map((column, index) => (
              <Th key={column} modifier="wrap" sort={sorting(index)}>
                {column}
              </Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {order.map((index) => (
            <Tr key={index}>
              {(rows[index] ?? []).map((cell, at) => {
                const column = columns[at] ?? "";
                return (
                  <Td key={column} dataLabel={column} {...(isShort(cell, numeric.includes(column)) ? { modifier: "nowrap" as const } : { className: styles["long"] ?? "" })}>
                    {cell}
                  </Td>
                );
              })}
            </Tr>
          ))}
        </Tbody>
      </Table>
      </div>
      {file && rows.length ? (
        <Button variant="link" icon={<DownloadIcon />} onClick={download}>
          Download CSV
        </Button>
      ) : null}
    </>
  );
}
