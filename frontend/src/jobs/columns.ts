/** The columns of the list: shown by default only where they tell rows apart; the user may choose otherwise. Pure. */
import type { JobRow } from "../api/client";

export interface Column {
  readonly key: ColumnKey;
  readonly label: string;
  readonly sort?: "owner" | "created" | "duration";
  /** Its width in rem. */
  readonly width: number;
  /** Columns of a higher number go first where there is little room. */
  readonly rank: number;
  /** Whether the rows give a reason to show it. */
  readonly useful: (rows: readonly JobRow[], project: string) => boolean;
}

export type ColumnKey = "project" | "type" | "progress" | "workers" | "gpus" | "queue" | "owner" | "created" | "duration";

const differ = (rows: readonly JobRow[], of: (row: JobRow) => unknown): boolean => new Set(rows.map(of)).size > 1;
const always = (): boolean => true;

export const COLUMNS: readonly Column[] = [
  { key: "progress", width: 10, rank: 1, label: "Progress", useful: always },
  { key: "workers", width: 5.5, rank: 2, label: "Workers", useful: always },
  { key: "gpus", width: 4, rank: 4, label: "GPUs", useful: (rows) => rows.some((row) => row.gpus > 0) },
  { key: "project", width: 7, rank: 6, label: "Project", useful: (rows, project) => !project && differ(rows, (row) => row.namespace) },
  { key: "type", width: 6.5, rank: 8, label: "Type", useful: (rows) => differ(rows, (row) => row.kind) },
  { key: "queue", width: 7, rank: 7, label: "Queue", useful: (rows) => rows.some((row) => row.queue) },
  { key: "owner", width: 6, rank: 9, label: "Owner", sort: "owner", useful: (rows) => differ(rows, (row) => row.owner) },
  { key: "created", width: 6.5, rank: 3, label: "Created", sort: "created", useful: always },
  { key: "duration", width: 6.5, rank: 5, label: "Duration", sort: "duration", useful: always },
];

/** The columns to show; `chosen` has what the user decided. */
export function shownColumns(rows: readonly JobRow[], project: string, chosen: Readonly<Record<string, boolean>>): ReadonlySet<ColumnKey> {
  return new Set(COLUMNS.filter(({ key, useful }) => chosen[key] ?? useful(rows, project)).map(({ key }) => key));
}

const FIXED_REM = 2.5 + 2 * 2.75; // selection, expansion, menu
const NAME_AND_STATUS_REM = 28;
const NAME_SHARE = 0.4;
const NAME_REM = [8, 22] as const;

/** The columns of these that fit into a width in rem; those that the user has chosen always do, and the table scrolls. */
export function fittingColumns(shown: ReadonlySet<ColumnKey>, chosen: Readonly<Record<string, boolean>>, width: number): readonly Column[] {
  const columns = COLUMNS.filter(({ key }) => shown.has(key));
  let left = width - FIXED_REM - NAME_AND_STATUS_REM;
  const kept = new Set<ColumnKey>();
  for (const column of [...columns].sort((one, other) => Number(Boolean(chosen[other.key])) - Number(Boolean(chosen[one.key])) || one.rank - other.rank)) {
    left -= column.width;
    if (chosen[column.key] || left >= 0) kept.add(column.key);
  }
  return columns.filter(({ key }) => kept.has(key));
}

/** The width of the name in rem: the reason beside the status is longer, and gets more of what is left. */
export function nameWidth(columns: readonly Column[], width: number): number {
  const left = width - FIXED_REM - columns.reduce((sum, column) => sum + column.width, 0);
  return Math.min(NAME_REM[1], Math.max(NAME_REM[0], NAME_SHARE * left));
}

/** The least width of a table with these columns, in rem. */
export const leastWidth = (columns: readonly Column[]): number => FIXED_REM + NAME_AND_STATUS_REM / 2 + columns.reduce((sum, { width }) => sum + width, 0);
