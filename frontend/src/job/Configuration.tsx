import { Alert, AlertActionLink, Button, CodeBlock, CodeBlockAction, CodeBlockCode, Content, Flex, Grid, GridItem, Skeleton, ToggleGroup, ToggleGroupItem } from "@patternfly/react-core";
import DownloadIcon from "@patternfly/react-icons/dist/esm/icons/download-icon";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "react-router-dom";
import { api, attemptParams, jobKey, jobParams, jobUrl, unwrap, type JobDetail, type JobRow } from "../api/client";
import { useRuns, useCapabilities } from "../api/queries";
import { CopyButton } from "../components/CopyButton";
import { Details } from "../components/Details";
import { ProblemAlert } from "../components/ProblemAlert";
import { Section } from "../components/Section";
import { useQueryParams } from "../lib/hooks";
import { clonePath, jobPath } from "../lib/links";
import { differences } from "../wizard/document";
import { ChangeTable } from "./ChangeTable";
import { configurationGroups } from "./configuration";
import { useJobPage } from "./context";
import styles from "./job.module.css";

/** What was asked for, group by group, with the differences from the run before; and the same as a file. */
export default function Configuration() {
  const { detail, row } = useJobPage();
  const [params, edit] = useQueryParams();
  const format = FORMATS.find(({ key }) => key === params.get("format"));
  const show = (key: string): void =>
    edit((query) => {
      if (key) query.set("format", key);
      else query.delete("format");
    });
  return (
    <>
      <div className={styles["toolbar"]}>
        <div className={styles["formats"]}>
        <ToggleGroup aria-label="Format">
          <ToggleGroupItem text="Fields" buttonId="format-fields" isSelected={!format} onChange={() => show("")} />
          {FORMATS.map(({ key, label }) => (
            <ToggleGroupItem key={key} text={label} buttonId={`format-${key}`} isSelected={format?.key === key} onChange={() => show(key)} />
          ))}
        </ToggleGroup>
        </div>
        <Button variant="link" component={(props) => <Link {...props} to={clonePath(row)} />}>
          Clone in form
        </Button>
      </div>
      {format ? <File format={format} row={row} /> : <Fields detail={detail} />}
    </>
  );
}

const FORMATS = [
  { key: "yaml", label: "mpijob YAML", ending: "yaml" },
  { key: "json", label: "JSON", ending: "json" },
  { key: "trainjob", label: "Kubeflow TrainJob", ending: "yaml" },
  { key: "mpijob", label: "MPIJob v2beta1", ending: "yaml" },
  { key: "sbatch", label: "Slurm script", ending: "sh" },
  { key: "pbs", label: "PBS script", ending: "sh" },
] as const;

/** The job as a file of one format; what is shown is what is copied and downloaded. */
function File({ format: { key, label, ending }, row }: { format: (typeof FORMATS)[number]; row: JobRow }) {
  const { path, query } = attemptParams(row);
  const text = useQuery({
    queryKey: [...jobKey(row, "export"), key],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/trainjobs/{namespace}/{name}/export", { params: { path, query: { ...query, format: key } }, parseAs: "text" }) as Promise<{
          data?: string;
          response: Response;
        }>,
      ),
    retry: false,
  });
  if (text.error) return <ProblemAlert error={text.error} title={`Couldn't write the job as ${label}`} />;
  if (text.data === undefined) return <Skeleton height="12rem" screenreaderText="Loading" />;
  return (
    <>
      <CodeBlock
        actions={
          <CodeBlockAction>
            <Flex gap={{ default: "gapSm" }}>
              <CopyButton label="Copy" text={text.data} size="sm" />
              <Button size="sm" variant="link" icon={<DownloadIcon />} component="a" href={jobUrl(row, "export", { format: key })} download={`${row.name}.${ending}`}>
                Download
              </Button>
            </Flex>
          </CodeBlockAction>
        }
      >
        <CodeBlockCode tabIndex={0} role="region" aria-label={label} data-testid="export">
          {text.data}
        </CodeBlockCode>
      </CodeBlock>
      <Content component="small">Secrets are masked here and in downloads. Clones keep the real values.</Content>
    </>
  );
}

function Fields({ detail }: { detail: JobDetail }) {
  const cluster = useCapabilities().data?.cluster ?? false;
  const runs = useRuns(detail.row).data?.items ?? [];
  const at = runs.findIndex(({ row }) => row.uid === detail.row.uid);
  const before = at >= 0 ? runs[at + 1]?.row : undefined;
  return (
    <div className={styles["column"]}>
      {before ? <AgainstPrevious before={before} detail={detail} /> : null}
      <Grid hasGutter>
        {configurationGroups(detail.spec, cluster).map(({ title, entries }) => (
          <GridItem key={title} lg={6}>
            <Section title={title} isCompact isFullHeight>
              <Details
                isHorizontal
                termWidth="12rem"
                entries={entries.map(({ label, value, isDefault }) => [
                  label,
                  isDefault ? (
                    <span key={label} className={styles["summary"]} title="Default">
                      {value}
                    </span>
                  ) : (
                    <span key={label} className={styles["cause"]}>
                      {value}
                    </span>
                  ),
                ])}
              />
            </Section>
          </GridItem>
        ))}
      </Grid>
    </div>
  );
}

/** How the configuration differs from that of the run before. */
function AgainstPrevious({ before, detail }: { before: JobRow; detail: JobDetail }) {
  const { namespace, name } = before;
  const navigate = useNavigate();
  const previous = useQuery({
    queryKey: ["job", namespace, name, "uid", before.uid],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: jobParams(before) })),
    retry: false,
  });
  if (!previous.data) return null;
  const changes = differences(previous.data.spec, detail.spec);
  return (
    <Alert
      isInline
      variant="info"
      component="h2"
      title={changes.length ? "Changes since the previous run" : "No changes since the previous run"}
      actionLinks={<AlertActionLink onClick={() => void navigate(jobPath(before, "overview", { uid: before.uid }))}>View previous run</AlertActionLink>}
    >
      {changes.length ? <ChangeTable changes={changes} label="Changes since the previous run" /> : null}
    </Alert>
  );
}
