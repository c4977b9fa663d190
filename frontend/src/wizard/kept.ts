/** The draft that is kept in this tab. It never comes from an address: a link must not be able to lay a command ready. */
const KEPT = "mpijob-draft";

export interface Written {
  readonly text: string;
  readonly command?: string;
}

export const keep = (draft: Written): void => sessionStorage.setItem(KEPT, JSON.stringify(draft));
export const forget = (): void => sessionStorage.removeItem(KEPT);

export function kept(): Written | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as Partial<Written> | null;
    return typeof found?.text === "string" ? { text: found.text, ...(found.command === undefined ? {} : { command: found.command }) } : null;
  } catch {
    return null;
  }
}
