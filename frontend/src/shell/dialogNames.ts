/** The dialogs of the page as a whole; `dialogs` has them, loaded when one is opened. */
export type DialogName = "shortcuts" | "cli" | "link" | "about";
