import { Button, Card, CardBody, CardFooter, CardTitle, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter } from "@patternfly/react-core";
import CubesIcon from "@patternfly/react-icons/dist/esm/icons/cubes-icon";
import SearchIcon from "@patternfly/react-icons/dist/esm/icons/search-icon";
import { Link } from "react-router-dom";
import { useTemplates } from "../api/queries";
import { startersFirst, templatePath } from "../wizard/templates";
import styles from "./jobs.module.css";

const SHOWN = 3;

/** No job yet: examples that run here, and the way to learn. */
export function NoJobs() {
  const starters = startersFirst(useTemplates().data?.items ?? [])
    .filter((template) => !template.blocker)
    .slice(0, SHOWN);
  return (
    <EmptyState titleText="No training jobs yet" headingLevel="h2" icon={CubesIcon}>
      <EmptyStateBody>Run one program on several workers at once. Start with an example:</EmptyStateBody>
      <EmptyStateFooter>
        <ul className={styles["starters"]} aria-label="Examples">
          {starters.map((template) => (
            <li key={template.name}>
              <Card isCompact isFullHeight>
                <CardTitle component="h3">{template.name}</CardTitle>
                <CardBody>{template.description}</CardBody>
                <CardFooter>
                  <Button variant="link" isInline component={(props) => <Link {...props} to={templatePath(template.name)} />}>
                    Use template<span className="pf-v6-screen-reader"> {template.name}</span>
                  </Button>
                </CardFooter>
              </Card>
            </li>
          ))}
        </ul>
        <EmptyStateActions>
          <Button component={(props) => <Link {...props} to="/create" />}>Create job</Button>
          <Button variant="link" component={(props) => <Link {...props} to="/learn" />}>
            Get started
          </Button>
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  );
}

/** No job matches the filters. */
export function NoResults({ onClear }: { onClear: () => void }) {
  return (
    <EmptyState titleText="No results found" headingLevel="h2" icon={SearchIcon} variant="sm">
      <EmptyStateBody>No job matches these filters.</EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          <Button variant="link" onClick={onClear}>
            Clear all filters
          </Button>
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  );
}
