import { Button } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import type { ReactNode } from "react";

interface Props {
  label: string;
  head: readonly string[];
  rows: readonly (readonly ReactNode[])[];
  /** The name of the file, where the rows can be taken along. */
  file?: string;
}

const word = (cell: ReactNode): string => (typeof cell === "string" || typeof cell === "number" ? String(cell) : "");
const safe = (text: string): string => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`; // a spreadsheet must not run it

/** Rows of words; as a file too, where it is asked for. */
export function Rows({ label, head, rows, file }: Props) {
  const save = (): void => {
    const text = [head, ...rows].map((cells) => cells.map((cell) => safe(word(cell))).join(",")).join("\r\n");
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: `${file ?? "table"}.csv` });
    link.click();
    URL.revokeObjectURL(address);
  };
  return (
    <>
      <Table aria-label={label} variant="compact">
        <Thead>
          <Tr>
            {head.map((one) => (
              <Th key={one} modifier="nowrap">
                {one}
              </Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {rows.map((cells, at) => (
            <Tr key={at}>
              {cells.map((cell, column) => (
                <Td key={column} dataLabel={head[column]} modifier={typeof cell === "string" && cell.length <= 24 ? "nowrap" : "breakWord"}>
                  {cell}
                </Td>
              ))}
            </Tr>
          ))}
        </Tbody>
      </Table>
      {file ? (
        <div>
          <Button variant="link" isInline onClick={save}>
            Download as CSV
          </Button>
        </div>
      ) : null}
    </>
  );
}
