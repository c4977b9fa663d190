import { EmptyState, EmptyStateBody } from "@patternfly/react-core";
import ThumbsUpIcon from "@patternfly/react-icons/dist/esm/icons/outlined-thumbs-up-icon";
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { Answer } from "../components/Answer";
import { DataTable } from "../components/DataTable";

/** Which help was helpful. */
export function HelpFeedback() {
  const feedback = useQuery({ queryKey: ["opinions"], queryFn: () => unwrap(api.GET("/api/v1/opinions")), retry: false });
  return (
    <Answer query={feedback}>
      {({ items }) =>
        items.length ? (
          <DataTable
            label="Help feedback"
            columns={["Topic", "Helpful", "Not helpful"]}
            rows={items.map((item) => [item.topic, String(item.yes), String(item.no)])}
            sortBy={items.map((item) => [item.topic, item.yes, item.no])}
            file="help-feedback"
          />
        ) : (
          <EmptyState titleText="No feedback yet" headingLevel="h2" icon={ThumbsUpIcon} variant="sm">
            <EmptyStateBody>Answers to “Helpful?” below help texts and causes of failures are counted here.</EmptyStateBody>
          </EmptyState>
        )
      }
    </Answer>
  );
}
