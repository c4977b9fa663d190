import { Label, type LabelProps } from "@patternfly/react-core";
import BanIcon from "@patternfly/react-icons/dist/esm/icons/ban-icon";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import ExclamationTriangleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-triangle-icon";
import HourglassHalfIcon from "@patternfly/react-icons/dist/esm/icons/hourglass-half-icon";
import InProgressIcon from "@patternfly/react-icons/dist/esm/icons/in-progress-icon";
import PauseCircleIcon from "@patternfly/react-icons/dist/esm/icons/pause-circle-icon";
import PendingIcon from "@patternfly/react-icons/dist/esm/icons/pending-icon";
import TrashIcon from "@patternfly/react-icons/dist/esm/icons/trash-icon";
import type { ComponentType } from "react";
import type { JobRow, Phase } from "../api/client";
import { isNotResponding } from "../lib/phases";

interface Look {
  readonly color: NonNullable<LabelProps["color"]>;
  readonly icon: ComponentType;
}

/** Each phase has a shape, a word and a colour, never a colour alone. */
export const PHASE_LOOKS: Record<Phase, Look> = {
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

interface Props {
  phase: Phase;
  isCompact?: boolean;
}

export function PhaseLabel({ phase, isCompact = false }: Props) {
  const { color, icon: Icon } = PHASE_LOOKS[phase];
  return (
    <Label color={color} icon={<Icon />} isCompact={isCompact} data-phase={phase}>
      {phase}
    </Label>
  );
}

/** The status of a job: its phase, or that it runs and does not get on. */
export function StatusLabel({ row, isCompact = false }: { row: Pick<JobRow, "phase" | "cause">; isCompact?: boolean }) {
  if (!isNotResponding(row)) return <PhaseLabel phase={row.phase} isCompact={isCompact} />;
  return (
    <Label color="orange" icon={<ExclamationTriangleIcon />} isCompact={isCompact} data-phase="NotResponding">
      Not responding
    </Label>
  );
}
