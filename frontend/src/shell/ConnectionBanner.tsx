import { Banner } from "@patternfly/react-core";
import { useConnection } from "../api/live";
import { age } from "../lib/format";
import { useNow } from "../lib/hooks";

const PATIENCE_SECONDS = 4;

/** That the page shows old data, how old it is, and that it reconnects by itself. */
export function ConnectionBanner() {
  const { connected, seen, trouble } = useConnection();
  const now = useNow();
  const seconds = Math.max(0, now - seen);
  const stale = (!connected && seconds > PATIENCE_SECONDS) || trouble;
  return (
    <div role="status" data-testid="connection" data-state={connected && !trouble ? "live" : "stale"}>
      {stale ? (
        <Banner color="yellow">
          {trouble ? `${trouble.message}. ` : ""}Showing data from {age(seconds)} ago. Reconnecting…
        </Banner>
      ) : null}
    </div>
  );
}
