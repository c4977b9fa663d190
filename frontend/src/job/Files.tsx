import { EmptyState, EmptyStateBody, SearchInput, Skeleton } from "@patternfly/react-core";
import FolderOpenIcon from "@patternfly/react-icons/dist/esm/icons/folder-open-icon";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, attemptParams, jobKey, jobUrl, unwrap } from "../api/client";
import { refetchedOn } from "../api/refetch";
import { DataTable } from "../components/DataTable";
import { ProblemAlert } from "../components/ProblemAlert";
import { Time } from "../components/Time";
import { bytes, plural } from "../lib/format";
import { useJobPage } from "./context";
import styles from "./job.module.css";

const MANY = 10;

/** The files that the job left, each to be downloaded. */
export default function Files() {
  const { row } = useJobPage();
  const [text, setText] = useState("");
  const files = useQuery({
    ...refetchedOn(jobKey(row, "artifacts"), row.phase),
    staleTime: 60_000, // listing them may take a cluster a while
    refetchOnWindowFocus: false,
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/artifacts", { params: attemptParams(row) })),
  });
  if (files.error) return <ProblemAlert error={files.error} />;
  if (!files.data) return <Skeleton height="12rem" screenreaderText="Loading files" />;
  const all = files.data.items;
  if (!all.length)
    return (
      <EmptyState titleText="No files yet" headingLevel="h2" icon={FolderOpenIcon} variant="sm">
        <EmptyStateBody>Files written to the working directory appear here.</EmptyStateBody>
      </EmptyState>
    );
  const shown = all.filter((file) => file.path.toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      <div className={styles["toolbar"]}>
        {all.length > MANY ? <SearchInput aria-label="Search files" placeholder="Search files" value={text} onChange={(_, value) => setText(value)} onClear={() => setText("")} /> : null}
        <span>
          {plural(shown.length, "file")}, {bytes(shown.reduce((sum, file) => sum + file.size, 0))}
        </span>
      </div>
      <DataTable
        label="Files"
        columns={["File", "Size", "Last modified"]}
        rows={shown.map((file) => [
          <a key="file" href={jobUrl(row, "artifact", { path: file.path })} download>
            {file.path}
          </a>,
          bytes(file.size),
          <Time key="time" at={file.time} />,
        ])}
        sortBy={shown.map((file) => [file.path, file.size, file.time])}
        numeric={["Size", "Last modified"]}
      />
    </>
  );
}
