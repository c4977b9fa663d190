import { Content, Grid, GridItem, List, ListItem } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, attemptParams, jobKey, unwrap, type MpiProfile } from "../api/client";
import { refetchedOn } from "../api/refetch";
import { DataTable } from "../components/DataTable";
import { Section } from "../components/Section";
import { UtilizationBar } from "../components/UtilizationBar";
import { useJobPage } from "../job/context";
import { bytes, capitalized, decimal, percent, roughly } from "../lib/format";
import { HeatMap } from "../metrics/HeatMap";
import { rankShares, trafficOf } from "./profile";
import styles from "./workers.module.css";

const LIVE_MS = 5000;
const SHOWN_RANKS = 8;
const SHOWN_CALLS = 8;

/** How ranks communicate: the share of their time in MPI, and the bytes between them, where that was recorded. */
export default function Communication() {
  const { detail, row } = useJobPage();
  const isRecorded = detail.spec.profile_mpi === true;
  const { path, query } = attemptParams(row);
  const profile = useQuery({
    ...refetchedOn(jobKey(row, "profile"), row.phase),
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/profile", { params: { path, query } })),
    enabled: isRecorded && row.started !== null,
    refetchInterval: row.phase === "Running" ? LIVE_MS : false,
    retry: false,
  });
  if (!isRecorded || !profile.data) return null;
  const { ranks = [], remarks = [], lacks = [], share } = profile.data;
  return (
    <Section title="Communication">
      <div className={styles["column"]}>
        {share === null || share === undefined ? null : (
          <p data-testid="mpi-share">
            <strong>{percent(share)}</strong> of the ranks&apos; time was spent in MPI.
          </p>
        )}
        {remarks.length ? (
          <List aria-label="Findings">
            {remarks.map((remark) => (
              <ListItem key={remark}>{capitalized(remark)}</ListItem>
            ))}
          </List>
        ) : null}
        {ranks.length ? <Shares profile={profile.data} /> : <Content component="p">Nothing was recorded yet.</Content>}
        {lacks.map((lack) => (
          <Content key={lack} component="small">
            {capitalized(lack)}
          </Content>
        ))}
      </div>
    </Section>
  );
}

function Shares({ profile }: { profile: MpiProfile }) {
  const shares = rankShares(profile);
  const traffic = useMemo(() => trafficOf(profile), [profile]);
  const names = useMemo(() => traffic.ranks.map((rank) => `Rank ${rank}`), [traffic]);
  const busiest = profile.pairs?.[0];
  const label = busiest
    ? `Bytes between ranks, ${traffic.ranks.length} by ${traffic.ranks.length}; the most from rank ${busiest.sender} to rank ${busiest.receiver}: ${bytes(busiest.size)}`
    : "Bytes between ranks";
  return (
    <>
      <Grid hasGutter>
        <GridItem lg={5}>
          <h3 className={styles["node"]}>Time in MPI, highest ranks</h3>
          <div className={styles["shares"]}>
            {shares.slice(0, SHOWN_RANKS).map(({ rank, share }) => (
              <UtilizationBar key={rank} label={`Rank ${rank}`} used={Math.min(1, share)} total={1} format={(value) => percent(value)} isPlain />
            ))}
          </div>
        </GridItem>
        <GridItem lg={7}>
          <h3 className={styles["node"]}>Bytes from each rank (rows) to each other (columns)</h3>
          {traffic.most ? (
            <HeatMap
              label={label}
              rows={names}
              columns={names.length}
              value={traffic.bytes}
              most={traffic.most}
              mostLabel={bytes(traffic.most)}
              columnNames={traffic.ranks.map(String)}
              describe={(from, to, amount) => `${names[from]} to ${names[to]}: ${bytes(amount)}`}
            />
          ) : (
            <p>The ranks sent each other no data.</p>
          )}
        </GridItem>
      </Grid>
      <DataTable
        label="MPI calls"
        columns={["Call", "Calls", "Time", "Data"]}
        rows={(profile.calls ?? []).slice(0, SHOWN_CALLS).map((call) => [call.name, String(call.calls), call.seconds < 1 ? `${decimal(call.seconds, 3)} s` : roughly(call.seconds), bytes(call.size ?? 0)])}
        numeric={["Calls", "Time", "Data"]}
      />
    </>
  );
}
