/** The keys of the page, as its help and the documentation show them. */

export const LIST_SHORTCUTS: readonly (readonly [string, string])[] = [
  ["/", "search"],
  ["c", "create a job"],
  ["↓ or j", "next job"],
  ["↑ or k", "previous job"],
  ["Enter", "open the job"],
  ["x", "select the job"],
  ["o", "expand the job"],
];

export const LOG_SHORTCUTS: readonly (readonly [string, string])[] = [
  ["n", "next warning or error"],
  ["p", "previous warning or error"],
];
