import { Breadcrumb, BreadcrumbItem, Button, Card, CardBody, CardTitle, Gallery, PageSection, Skeleton, Switch, Title } from "@patternfly/react-core";
import TimesIcon from "@patternfly/react-icons/dist/esm/icons/times-icon";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQueries, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { Link } from "react-router-dom";
import { api, unwrap, type Curves } from "../api/client";
import { PhaseLabel } from "../components/PhaseLabel";
import { ProblemAlert } from "../components/ProblemAlert";
import { SelectMenu } from "../components/SelectMenu";
import { significant } from "../lib/format";
import { usePageTitle, useQueryParams } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { comparedRows, configurationRows, overlaid, type ComparedJob } from "./comparison";
import styles from "./pages.module.css";

const Chart = lazy(() => import("../metrics/Chart").then((module) => ({ default: module.Chart })));
const RECENT = 50;
const MOST = 10;

/** Compare jobs: results, metrics, cost and configuration. */
export function Compare() {
  usePageTitle("Compare jobs");
  const [params, edit] = useQueryParams();
  const addresses = params.getAll("job");
  const onlyDifferences = params.get("all") !== "true";
  const comparison = useQuery({
    queryKey: ["compare", addresses],
    queryFn: () => unwrap(api.GET("/api/v1/compare", { params: { query: { job: addresses } } })),
    refetchInterval: 10_000,
    enabled: addresses.length > 1,
  });
  const path = (address: string) => {
    const [namespace = "", name = ""] = address.split("/");
    return { namespace, name };
  };
  const accounts = useQueries({
    queries: addresses.map((address) => ({
      queryKey: ["account", address],
      queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/account", { params: { path: path(address) } })),
      retry: false,
    })),
  });
  const curves = useQueries({
    queries: addresses.map((address) => ({
      queryKey: ["curves", address],
      queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/curves", { params: { path: path(address), query: { points: 240 } } })),
      retry: false,
    })),
  });
  const jobs: readonly ComparedJob[] = (comparison.data?.jobs ?? []).map((column, index) => ({
    column,
    account: accounts[index]?.data ?? null,
    curves: curves[index]?.data ?? null,
  }));
  const set = (next: readonly string[]): void =>
    edit((query) => {
      query.delete("job");
      for (const address of next) query.append("job", address);
    });
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>Compare</BreadcrumbItem>
        </Breadcrumb>
        <Title headingLevel="h1">Compare jobs</Title>
      </PageSection>
      <PageSection isFilled hasBodyWrapper={false}>
        <div className={styles["toolbar"]}>
          <AddJob addresses={addresses} onAdd={(address) => set([...addresses, address])} />
          <Switch id="only-differences" label="Only differences" isChecked={onlyDifferences} onChange={(_, on) => edit((query) => (on ? query.delete("all") : query.set("all", "true")))} />
        </div>
        {addresses.length < 2 ? <p>Add at least two jobs to compare.</p> : null}
        {comparison.error ? <ProblemAlert error={comparison.error} /> : null}
        {comparison.isLoading ? <Skeleton height="12rem" screenreaderText="Comparing" /> : null}
        {comparison.data ? (
          <div className={styles["column"]}>
            <Suspense fallback={null}>
              <OverlaidCurves names={jobs.map(({ column }) => column.ref.name)} curves={jobs.map((job) => job.curves)} />
            </Suspense>
            <ComparisonTable
              label="Results"
              jobs={jobs}
              rows={comparedRows(jobs)}
              onlyDifferences={false}
              onRemove={(index) => set(addresses.filter((_, at) => at !== index))}
            />
            <ComparisonTable label="Configuration" jobs={jobs} rows={configurationRows(comparison.data)} onlyDifferences={onlyDifferences} />
            {comparison.data.differences.length ? null : <p>Configurations are identical.</p>}
          </div>
        ) : null}
      </PageSection>
    </>
  );
}

function AddJob({ addresses, onAdd }: { addresses: readonly string[]; onAdd: (address: string) => void }) {
  const list = useQuery({ queryKey: ["jobs", "comparable"], queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query: { limit: RECENT } } })), retry: false });
  const others = (list.data?.items ?? []).filter((row) => !addresses.includes(`${row.namespace}/${row.name}`));
  if (addresses.length >= MOST) return null;
  return (
    <SelectMenu
      label="Add job"
      value=""
      isDisabled={!others.length}
      options={[{ value: "", label: "Add job" }, ...others.map((row) => ({ value: `${row.namespace}/${row.name}`, label: row.name, description: `${row.phase}, ${row.namespace}` }))]}
      onChange={(address) => {
        if (address) onAdd(address);
      }}
    />
  );
}

/** The metrics that several jobs have, one chart each with a line for each job. */
function OverlaidCurves({ names, curves }: { names: readonly string[]; curves: readonly (Curves | null)[] }) {
  const key = curves.map((one) => one?.updated ?? 0).join();
  const charts = useMemo(() => overlaid(names, curves), [names.join(), key]); // eslint-disable-line react-hooks/exhaustive-deps -- the answers are new objects each time
  if (!charts.length) return null;
  return (
    <Gallery hasGutter minWidths={{ default: "100%", lg: "26rem" }}>
      {charts.map(({ metric, xName, xs, series }) => (
        <Card key={metric} isCompact component="section" aria-label={metric}>
          <CardTitle component="h2">{metric}</CardTitle>
          <CardBody>
            <Chart label={`${metric} of ${series.map((one) => one.label).join(", ")}`} xs={xs} xName={xName} series={series} format={significant} syncKey="compare" hasLegend />
            <span className={styles["note"]}>by {xName}</span>
          </CardBody>
        </Card>
      ))}
    </Gallery>
  );
}

const LONG = 120;
const LEAST_COLUMN_REM = 8;

interface TableProps {
  label: string;
  jobs: readonly ComparedJob[];
  rows: ReturnType<typeof comparedRows>;
  onlyDifferences: boolean;
  onRemove?: (index: number) => void;
}

function ComparisonTable({ label, jobs, rows, onlyDifferences, onRemove }: TableProps) {
  const shown = rows.filter(({ values }) => !onlyDifferences || new Set(values).size > 1);
  if (!shown.length) return null;
  return (
    <div className={styles["comparison"]}>
    <Table aria-label={label} variant="compact" gridBreakPoint="" className={styles["compared"] ?? ""} style={{ minInlineSize: `${LEAST_COLUMN_REM * (jobs.length + 1)}rem` }}>
      <Thead>
        <Tr>
          <Th {...(jobs.length > 2 ? { width: 20 as const } : {})}>{label}</Th>
          {jobs.map(({ column }, index) => (
            <Th key={`${column.ref.namespace}/${column.ref.name}`}>
              <Link to={jobPath(column.ref)}>{column.ref.name}</Link>
              {onRemove && jobs.length > 2 ? <Button variant="plain" size="sm" aria-label={`Remove ${column.ref.name}`} icon={<TimesIcon />} onClick={() => onRemove(index)} /> : null}
            </Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {shown.map(({ label: name, values, best }) => (
          <Tr key={name}>
            <Th scope="row">{name}</Th>
            {values.map((value, index) => (
              <Td key={index} dataLabel={jobs[index]?.column.ref.name ?? ""} modifier="breakWord" className={best === index ? styles["best"] : ""}>
                {name === "Status" ? (
                  <PhaseLabel phase={jobs[index]?.column.phase ?? "Pending"} isCompact />
                ) : (
                  <span className={styles["clamped"]} title={value.length > LONG ? value : ""}>
                    {value}
                    {best === index ? " (best)" : ""}
                  </span>
                )}
              </Td>
            ))}
          </Tr>
        ))}
      </Tbody>
    </Table>
    </div>
  );
}
