import { Alert, Button, Content, ExpandableSection } from "@patternfly/react-core";
import { useState } from "react";
import { Link } from "react-router-dom";
import type { Finding, JobDetail } from "../api/client";

/** Why the job stands where it stands: the first cause, its evidence, and what would mend it. */
export function Why({ detail }: { detail: JobDetail }) {
  const findings = detail.state.findings ?? [];
  if (!findings.length) return null;
  const before = (at: number): number => findings.slice(0, at).reduce((sum, one) => sum + (one.fixes ?? []).length, 0);
  return (
    <section aria-labelledby="why" data-testid="why">
      <h2 id="why" className="pf-v6-screen-reader">
        Why
      </h2>
      {findings.map((finding, index) => (
        <Cause key={`${finding.code}${index}`} finding={finding} detail={detail} first={index === 0} firstFix={before(index)} />
      ))}
    </section>
  );
}

function Cause({ finding, detail, first, firstFix }: { finding: Finding; detail: JobDetail; first: boolean; firstFix: number }) {
  const [open, setOpen] = useState(first);
  const place = `/jobs/${detail.row.namespace}/${detail.row.name}`;
  const severity = finding.severity ?? "error";
  const sure = finding.confidence ?? 1;
  const fixes = finding.fixes ?? [];
  return (
    <Alert
      isInline
      variant={severity === "error" ? "danger" : severity === "warning" ? "warning" : "info"}
      title={finding.message}
      className="cause"
    >
      {finding.hint && finding.hint !== fixes[0]?.text ? <Content component="p">{finding.hint}</Content> : null}
      {sure < 0.9 ? <Content component="small">{sure >= 0.6 ? "likely" : "possible"}</Content> : null}
      {fixes.length ? (
        <>
          <Content component="p">What would mend it:</Content>
          <ol className="fixes">
            {fixes.map((fix, index) => (
              <li key={fix.text}>
                {fix.text}{" "}
                {fix.patch && Object.keys(fix.patch).length ? (
                  <Button
                    variant="link"
                    isInline
                    component={(props) => (
                      <Link {...props} to={`/create?from=${encodeURIComponent(`${detail.row.namespace}/${detail.row.name}`)}&fix=${firstFix + index}`} />
                    )}
                  >
                    Clone with this change
                  </Button>
                ) : null}
              </li>
            ))}
          </ol>
        </>
      ) : null}
      {(finding.evidence ?? []).length ? (
        <ExpandableSection toggleText="Evidence" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
          <pre className="exactly" tabIndex={0} aria-label="Evidence">
            {(finding.evidence ?? []).join("\n")}
          </pre>
        </ExpandableSection>
      ) : null}
      <Link to={finding.rank === undefined || finding.rank === null ? `${place}/logs` : `${place}/logs?ranks=${finding.rank}`}>
        View detailed logs
      </Link>
      <Content component="small">Code {finding.code}</Content>
    </Alert>
  );
}
