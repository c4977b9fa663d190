import { Breadcrumb, BreadcrumbItem, PageSection, Spinner, Title } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router-dom";
import { api, take } from "../api/client";
import { PhaseLabel } from "../components/PhaseLabel";
import { ProblemAlert } from "../components/ProblemAlert";
import { useTitle } from "../hooks";
import { bytes, duration } from "../words";

const said = (value: unknown): string =>
  value === null || value === undefined || value === "" ? "–" : typeof value === "string" ? value : JSON.stringify(value);

/** Several jobs side by side: how each went, then only what differs. */
export function Compare() {
  useTitle("Compare");
  const [params] = useSearchParams();
  const job = params.getAll("job");
  const found = useQuery({
    queryKey: ["compare", job],
    queryFn: () => take(api.GET("/api/v1/compare", { params: { query: { job } } })),
    refetchInterval: 5000,
  });
  const told = found.data;
  const rows: [string, (string | JSX.Element)[]][] = told
    ? [
        ["Status", told.jobs.map((one) => <PhaseLabel key={one.ref.name} phase={one.phase} />)],
        ["Ran for", told.jobs.map((one) => duration(one.duration_seconds))],
        ["Result", told.jobs.map((one) => said(one.result))],
        ["Peak memory of a worker", told.jobs.map((one) => bytes(one.account?.peak_bytes))],
        ...told.differences.map((one): [string, string[]] => [one.field, one.values.map(said)]),
      ]
    : [];
  return (
    <>
      <PageSection>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>Compare</BreadcrumbItem>
        </Breadcrumb>
        <Title headingLevel="h1">Compare</Title>
      </PageSection>
      <PageSection isFilled>
        {found.error ? <ProblemAlert error={found.error} /> : null}
        {found.isPending ? <Spinner aria-label="Comparing" /> : null}
        {told ? (
          <>
            <Table aria-label="Jobs side by side" variant="compact">
              <Thead>
                <Tr>
                  <Th>What</Th>
                  {told.jobs.map((one) => (
                    <Th key={`${one.ref.namespace}/${one.ref.name}`}>
                      <Link to={`/jobs/${one.ref.namespace}/${one.ref.name}`}>{one.ref.name}</Link>
                    </Th>
                  ))}
                </Tr>
              </Thead>
              <Tbody>
                {rows.map(([what, values]) => (
                  <Tr key={what}>
                    <Th scope="row">{what}</Th>
                    {values.map((value, at) => (
                      <Td key={at} dataLabel={told.jobs[at]?.ref.name} modifier="breakWord">
                        {value}
                      </Td>
                    ))}
                  </Tr>
                ))}
              </Tbody>
            </Table>
            {told.differences.length ? null : <p className="none">Their configurations are the same.</p>}
          </>
        ) : null}
      </PageSection>
    </>
  );
}
