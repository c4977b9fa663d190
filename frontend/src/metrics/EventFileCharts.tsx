import { Alert, Button, Card, CardBody, CardHeader, CardTitle, ExpandableSection, Flex, FlexItem, Gallery, List, ListItem, SearchInput } from "@patternfly/react-core";
import { useMemo, useState } from "react";
import type { JobRow } from "../api/client";
import { useScalars } from "../api/queries";
import { DataTable } from "../components/DataTable";
import { plural, significant } from "../lib/format";
import { Chart } from "./Chart";
import styles from "./metrics.module.css";
import { hasLine, MOST_LINES, runName, tagCharts, type TagChart } from "./scalars";

const MOST_CHARTS = 24;
const MOST_DESCRIBED = 4;
const FILTER_FROM = 6; // charts

/** The scalars of the TensorBoard event files that the job wrote: a chart for each tag, a line for each run. */
export function EventFileCharts({ row }: { row: JobRow }) {
  const { data } = useScalars(row);
  const [words, setWords] = useState("");
  const [showsAll, setShowsAll] = useState(false);
  const [open, setOpen] = useState(false);
  const charts = useMemo(() => tagCharts(data?.series ?? [], words), [data?.series, words]);
  const { series = [], notes = [], files = 0 } = data ?? {};
  if (!series.length && !notes.length) return null;
  const tags = new Set(series.map(({ tag }) => tag)).size;
  const shown = showsAll ? charts : charts.slice(0, MOST_CHARTS);
  return (
    <section aria-label="TensorBoard event files" className={styles["section"]}>
      <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
        <h2 className={styles["heading"]}>TensorBoard event files</h2>
        {tags >= FILTER_FROM ? (
          <FlexItem>
            <SearchInput aria-label="Filter by tag or run" placeholder="Filter by tag or run" value={words} onChange={(_, next) => setWords(next)} onClear={() => setWords("")} />
          </FlexItem>
        ) : null}
      </Flex>
      <p className={styles["note"]} aria-live="polite">
        {words ? `${charts.length} of ${plural(tags, "tag")}` : `${plural(tags, "tag")} in ${plural(files, "file")} of the job.`}
      </p>
      {notes.length ? (
        <Alert isInline variant="warning" component="h3" title="Some event files could not be read completely">
          <List>
            {notes.map((note) => (
              <ListItem key={note}>{note}</ListItem>
            ))}
          </List>
        </Alert>
      ) : null}
      <Gallery hasGutter minWidths={{ default: "100%", lg: "26rem" }}>
        {shown.map((one) => (
          <TagCard key={one.tag} chart={one} />
        ))}
      </Gallery>
      {charts.length > shown.length ? (
        <Button variant="link" isInline onClick={() => setShowsAll(true)}>
          Show all {charts.length} charts
        </Button>
      ) : null}
      {series.length ? (
        <ExpandableSection toggleText="Show event files as table" isExpanded={open} onToggle={(_, next) => setOpen(next)}>
          {open ? (
            <DataTable
              label="Scalars of event files"
              columns={["Tag", "Run", "Latest", "Min", "Max", "Values"]}
              rows={charts.flatMap(({ tag, runs }) => runs.map((one) => [tag, runName(one.run), significant(one.last, 6), significant(one.least, 6), significant(one.most, 6), String(one.count)]))}
              file={`${row.name}-scalars`}
            />
          ) : null}
        </ExpandableSection>
      ) : null}
    </section>
  );
}

function TagCard({ chart }: { chart: TagChart }) {
  const { tag, runs, xName, xs, lines } = chart;
  const described = runs.slice(0, MOST_DESCRIBED).map((one) => `${runName(one.run)}: final ${significant(one.last)}, min ${significant(one.least)}, max ${significant(one.most)}`);
  const more = runs.length > MOST_DESCRIBED ? `; ${runs.length - MOST_DESCRIBED} more runs are in the table` : "";
  const [only] = runs;
  return (
    <Card isCompact component="section" aria-label={tag}>
      <CardHeader {...(runs.length === 1 && only ? { actions: { actions: <span className={styles["statValue"]}>{significant(only.last)}</span>, hasNoOffset: true } } : {})}>
        <CardTitle component="h3" className={styles["tag"]}>
          {tag}
        </CardTitle>
      </CardHeader>
      <CardBody>
        {hasLine(chart) ? (
          <Chart label={`${tag}. ${described.join("; ")}${more}`} xs={xs} xName={xName} series={lines} format={significant} hasLegend={runs.length > 1} />
        ) : (
          <p>{described.join("; ")}</p>
        )}
        <span className={styles["note"]}>
          {runs.length > MOST_LINES ? `${MOST_LINES} of ${runs.length} runs · ` : ""}
          {runs.length === 1 && only ? `${runName(only.run)} · by ${xName} · min ${significant(only.least)} · max ${significant(only.most)}` : `by ${xName}`}
        </span>
      </CardBody>
    </Card>
  );
}
