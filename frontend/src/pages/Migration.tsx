import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { Answer } from "../components/Answer";
import { Section } from "../components/Section";
import { UtilizationBar } from "../components/UtilizationBar";
import { percent } from "../lib/format";

/** How far the move from MPIJob v2beta1 is. */
export function Migration() {
  const migration = useQuery({ queryKey: ["migration"], queryFn: () => unwrap(api.GET("/api/v1/migration")), retry: false });
  return (
    <Section title="MPIJob v2beta1 migration">
      <Answer query={migration}>
        {({ rows, moved = 0, ready, check, blocked, automatic = 1 }) => {
          const total = rows.length + moved;
          if (!total) return <p>No legacy MPIJobs found.</p>;
          return (
            <>
              <UtilizationBar label="Migrated" used={moved} total={total} />
              <p>
                {ready} ready, {check} need review, {blocked} blocked; {percent(automatic)} of the fields are converted automatically.
              </p>
            </>
          );
        }}
      </Answer>
    </Section>
  );
}
