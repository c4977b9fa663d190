/** The draft of a job, kept in this tab. It never comes from an address: a link must not be able to lay a command ready.
 *
 * A draft is open while its form is shown, so that reloading the page goes on with it. Once the user has left the form,
 * it is offered and not laid into a new one.
 */
const KEY = "mpijob.draft";

export interface StoredDraft {
  readonly text: string;
  readonly command?: string;
  readonly isOpen?: boolean;
}

export function storedDraft(): StoredDraft | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Partial<StoredDraft> | null;
    return typeof found?.text === "string" && found.text.trim() ? { ...found, text: found.text } : null;
  } catch {
    return null;
  }
}

export const storeDraft = (draft: StoredDraft): void => sessionStorage.setItem(KEY, JSON.stringify({ isOpen: true, ...draft }));
export const forgetDraft = (): void => sessionStorage.removeItem(KEY);

/** Note that the user has left the form. */
export function leaveDraft(): void {
  const draft = storedDraft();
  if (draft) storeDraft({ ...draft, isOpen: false });
}
