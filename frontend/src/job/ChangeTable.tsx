import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import type { Difference } from "../wizard/document";
import { shownPath, shownValue } from "./changes";

interface Props {
  changes: readonly Difference[];
  label: string;
}

/** What a configuration changes: field, value before, value after. */
export function ChangeTable({ changes, label }: Props) {
  return (
    <Table aria-label={label} variant="compact" borders={false} gridBreakPoint="" data-testid="changes">
      <Thead>
        <Tr>
          <Th>Field</Th>
          <Th>Before</Th>
          <Th>After</Th>
        </Tr>
      </Thead>
      <Tbody>
        {changes.map(({ path, was, is }) => (
          <Tr key={path}>
            <Td modifier="breakWord">{shownPath(path)}</Td>
            <Td modifier="breakWord">{shownValue(was)}</Td>
            <Td modifier="breakWord">
              <strong>{shownValue(is)}</strong>
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
