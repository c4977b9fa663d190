/** Templates in the order in which they are offered. Pure. */
import type { Template } from "../api/client";

export const ORIGINS: Record<string, string> = { library: "Library", shared: "Team", own: "Mine" };

const EASY = ["hello", "mpi4py"];
const easiness = (name: string): number => {
  const index = EASY.indexOf(name);
  return index < 0 ? EASY.length : index;
};

/** What runs here first, of that the easiest first. */
export const startersFirst = (templates: readonly Template[]): readonly Template[] =>
  [...templates].sort(
    (one, other) => Number(Boolean(one.blocker)) - Number(Boolean(other.blocker)) || easiness(one.name) - easiness(other.name) || one.name.localeCompare(other.name),
  );

/** The form with a template, of a project where that is not the user's own. */
export const templatePath = (name: string, project = ""): string =>
  `/create?template=${encodeURIComponent(name)}${project ? `&namespace=${encodeURIComponent(project)}` : ""}&step=review`;
