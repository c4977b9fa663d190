import { Button, Card, CardBody, CardFooter, CardTitle, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter } from "@patternfly/react-core";
import CubesIcon from "@patternfly/react-icons/dist/esm/icons/cubes-icon";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { api, take } from "../api/client";

const STARTERS = ["hello", "horovod", "deepspeed"];

/** No job yet: three to begin with, or the way to learn. */
export function Nothing() {
  const templates = useQuery({ queryKey: ["templates"], queryFn: () => take(api.GET("/api/v1/templates")) });
  const all = templates.data?.items ?? [];
  const some = [...all].sort((one, other) => rank(one.name) - rank(other.name)).slice(0, 3);
  return (
    <EmptyState titleText="No training jobs yet" headingLevel="h2" icon={CubesIcon} isFullHeight={false}>
      <EmptyStateBody>An MPI job starts one program on several workers at once. Begin with an example; it runs as it is.</EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          <Button component={(props) => <Link {...props} to="/create" />}>Create job</Button>
          <Button variant="secondary" component={(props) => <Link {...props} to="/learn" />}>
            Learn which type
          </Button>
        </EmptyStateActions>
        <ul className="kinds starters" aria-label="Examples to begin with">
          {some.map((one) => (
            <li key={one.name}>
              <Card isCompact>
                <CardTitle component="h3">{one.name}</CardTitle>
                <CardBody>{one.description}</CardBody>
                <CardFooter>
                  <Link to={`/create?template=${encodeURIComponent(one.name)}`}>Begin with {one.name}</Link>
                </CardFooter>
              </Card>
            </li>
          ))}
        </ul>
      </EmptyStateFooter>
    </EmptyState>
  );
}

const rank = (name: string): number => {
  const at = STARTERS.findIndex((one) => name.includes(one));
  return at < 0 ? STARTERS.length : at;
};
