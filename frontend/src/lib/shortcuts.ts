/** The keys of the page, as its help and the documentation show them. */

export const LIST_SHORTCUTS: readonly (readonly [string, string])[] = [
  ["/", "Search"],
  ["c", "Create a job"],
  ["↓ or j", "Next job"],
  ["↑ or k", "Previous job"],
  ["Enter", "Open the job"],
  ["x", "Select the job"],
  ["o", "Expand the job"],
];

export const LOG_SHORTCUTS: readonly (readonly [string, string])[] = [
  ["n", "Next warning or error"],
  ["p", "Previous warning or error"],
];
