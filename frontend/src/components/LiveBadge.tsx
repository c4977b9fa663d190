import { Banner, Label } from "@patternfly/react-core";
import ConnectedIcon from "@patternfly/react-icons/dist/esm/icons/connected-icon";
import DisconnectedIcon from "@patternfly/react-icons/dist/esm/icons/disconnected-icon";
import { useLive } from "../api/live";
import { useNow } from "../hooks";
import { duration } from "../words";

/** Whether what is shown is current; if not, how old it is. */
export function LiveBadge() {
  const { connected, seen, trouble } = useLive();
  const now = useNow();
  if (connected && !trouble)
    return (
      <Label color="green" icon={<ConnectedIcon />} data-testid="live">
        Live
      </Label>
    );
  return (
    <Label color="orange" icon={<DisconnectedIcon />} data-testid="live" title={trouble?.message}>
      Reconnecting, last update {duration(Math.round(now - seen))} ago
    </Label>
  );
}

const PATIENCE_SECONDS = 4;

/** That nothing new comes, since when, and that the page goes on by itself. */
export function Lost() {
  const { connected, seen, trouble } = useLive();
  const now = useNow();
  const age = Math.round(now - seen);
  const lost = (!connected && age > PATIENCE_SECONDS) || trouble;
  return (
    <div role="status">
      {lost ? (
        <Banner color="yellow" data-testid="lost">
          {trouble ? trouble.message : "The server does not answer."} What you see is {duration(age)} old; the page goes on by itself when it is back.
        </Banner>
      ) : null}
    </div>
  );
}
