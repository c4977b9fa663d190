import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { addressOf, api, take, type JobDetail } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { at } from "../where";
import { bytes, moment } from "../words";

/** The files that the job left, each to be fetched. */
export function Artifacts({ detail }: { detail: JobDetail }) {
  const { namespace, name, phase, uid } = detail.row;
  const files = useQuery({
    queryKey: ["job", namespace, name, "artifacts", phase],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/artifacts", { params: addressOf(detail.row) })),
  });
  if (files.error) return <ProblemAlert error={files.error} />;
  if (!files.data) return null;
  if (!files.data.items.length) return <p>The job left no files in its working directory.</p>;
  return (
    <Table aria-label="Files" variant="compact">
      <Thead>
        <Tr>
          {["File", "Size", "Changed"].map((word) => (
            <Th key={word}>{word}</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {files.data.items.map((file) => (
          <Tr key={file.path}>
            <Td dataLabel="File" modifier="breakWord">
              <a href={at(`/api/v1/trainjobs/${namespace}/${name}/artifact?path=${encodeURIComponent(file.path)}${uid.includes("/") ? "" : `&uid=${uid}`}`)} download>
                {file.path}
              </a>
            </Td>
            <Td dataLabel="Size">{bytes(file.size)}</Td>
            <Td dataLabel="Changed">{moment(file.time)}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
