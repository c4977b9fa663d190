import { Label, type LabelProps } from "@patternfly/react-core";
import BanIcon from "@patternfly/react-icons/dist/esm/icons/ban-icon";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import HourglassHalfIcon from "@patternfly/react-icons/dist/esm/icons/hourglass-half-icon";
import InProgressIcon from "@patternfly/react-icons/dist/esm/icons/in-progress-icon";
import PauseCircleIcon from "@patternfly/react-icons/dist/esm/icons/pause-circle-icon";
import PendingIcon from "@patternfly/react-icons/dist/esm/icons/pending-icon";
import TrashIcon from "@patternfly/react-icons/dist/esm/icons/trash-icon";
import type { ComponentType } from "react";
import type { Phase } from "../api/client";

interface Look {
  color: NonNullable<LabelProps["color"]>;
  icon: ComponentType;
}

/** Each phase has a shape, a word and a colour, never a colour alone. */
export const LOOKS: Record<Phase, Look> = {
  Queued: { color: "teal", icon: HourglassHalfIcon },
  Pending: { color: "teal", icon: PendingIcon },
  Initializing: { color: "blue", icon: PendingIcon },
  Running: { color: "blue", icon: InProgressIcon },
  Suspended: { color: "purple", icon: PauseCircleIcon },
  Succeeded: { color: "green", icon: CheckCircleIcon },
  Failed: { color: "red", icon: ExclamationCircleIcon },
  Cancelled: { color: "grey", icon: BanIcon },
  Deleting: { color: "grey", icon: TrashIcon },
};

export function PhaseLabel({ phase }: { phase: Phase }) {
  const { color, icon: Icon } = LOOKS[phase];
  return (
    <Label color={color} icon={<Icon />} data-phase={phase}>
      {phase}
    </Label>
  );
}
