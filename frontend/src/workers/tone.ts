/** The tone in which a worker or rank of a phase is drawn; the word stands beside it. Pure. */
import type { Phase } from "../api/client";
import { PHASE_LOOKS } from "../components/PhaseLabel";

export type Tone = "success" | "danger" | "running" | "waiting" | "ended";

const TONES: Record<string, Tone> = { green: "success", red: "danger", blue: "running", teal: "waiting", purple: "waiting" };

export const phaseTone = (phase: Phase): Tone => TONES[PHASE_LOOKS[phase].color] ?? "ended";
