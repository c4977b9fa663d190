import { Alert, Button, ExpandableSection, List, ListComponent, ListItem, OrderType } from "@patternfly/react-core";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { api, jobParams, unwrap } from "../api/client";
import type { components } from "../api/schema";
import { ProblemAlert } from "../components/ProblemAlert";
import { Section } from "../components/Section";
import { useJobPage } from "../job/context";
import { capitalized, plural, spans } from "../lib/format";
import styles from "./workers.module.css";

type Report = components["schemas"]["StackReport"];
type Group = components["schemas"]["StackGroup"];
type Frame = components["schemas"]["Frame"];

/** Where the ranks of a running job are in their programs: for a job that does not get on. */
export function Stacks({ isAsked }: { isAsked: boolean }) {
  const { row } = useJobPage();
  const section = useRef<HTMLDivElement>(null);
  const capture = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/trainjobs/{namespace}/{name}/stacks", { params: jobParams(row) })),
  });
  useEffect(() => {
    if (isAsked) section.current?.scrollIntoView({ block: "center" });
  }, [isAsked]);
  if (row.phase !== "Running") return null;
  return (
    <div ref={section}>
      <Section title="Call stacks">
        <div className={styles["column"]}>
          <p>Find out where a stuck job hangs: capture the call stack of every rank. The job pauses for a moment and then continues.</p>
          <div>
            <Button variant={isAsked ? "primary" : "secondary"} isLoading={capture.isPending} isDisabled={capture.isPending} onClick={() => capture.mutate()}>
              {capture.data ? "Capture again" : "Capture stacks"}
            </Button>
          </div>
          {capture.error ? <ProblemAlert error={capture.error} /> : null}
          <div aria-live="polite">{capture.data ? <StackGroups report={capture.data} /> : null}</div>
        </div>
      </Section>
    </div>
  );
}

function StackGroups({ report }: { report: Report }) {
  return (
    <>
      {(report.remarks ?? []).map((sentence) => (
        <Alert key={sentence} isInline variant="info" component="h3" title={capitalized(sentence)} />
      ))}
      <List aria-label="Stacks by function" className={styles["calls"] ?? ""}>
        {(report.groups ?? []).map((group) => (
          <ListItem key={`${group.where}${group.ranks[0]}`}>
            {plural(group.ranks.length, "rank")} ({spans(group.ranks)}) in <code>{group.where}</code>
            {group.waits ? ", waiting for other ranks" : ""}
            <Frames group={group} />
          </ListItem>
        ))}
      </List>
      {(report.remarks ?? []).length ? null : <p>{capitalized(report.summary)}</p>}
      {(report.lacks ?? []).map((sentence) => (
        <p key={sentence}>{capitalized(sentence)}</p>
      ))}
    </>
  );
}

const place = ({ file, line }: Frame): string => (file ? ` (${file}${line ? `:${line}` : ""})` : "");

function Frames({ group: { frames = [], ranks } }: { group: Group }) {
  if (!frames.length) return null;
  return (
    <ExpandableSection toggleText={`Stack of rank ${ranks[0] ?? 0}`}>
      <List component={ListComponent.ol} type={OrderType.number}>
        {frames.map((frame, index) => (
          <ListItem key={index}>
            <code>
              {frame.function}
              {place(frame)}
            </code>
          </ListItem>
        ))}
      </List>
    </ExpandableSection>
  );
}
