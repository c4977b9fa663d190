import { Label } from "@patternfly/react-core";
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
