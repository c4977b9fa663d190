/** Rows as CSV. Pure. */

/** A cell that a spreadsheet does not take for a formula. */
const cell = (text: string): string => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

export const toCsv = (rows: readonly (readonly string[])[]): string => rows.map((row) => row.map(cell).join(",")).join("\r\n");
