/** A fix as the page offers it: the sentence without its command line, and what the page itself can do instead. Pure. */
import type { Fix } from "../api/client";
import { capitalized, quantity } from "./format";

export type FixAction =
  | { readonly kind: "retry" | "resume" | "stacks" | "events" | "metrics" | "workers" | "queue" | "configuration" }
  | { readonly kind: "logs"; readonly query: Readonly<Record<string, string>> }
  | { readonly kind: "job"; readonly name: string }
  | { readonly kind: "command"; readonly command: string };

const FLAGS: Record<string, string> = { "--rank": "ranks", "--worker": "workers", "--role": "role", "--attempt": "attempt" };

/** The filters of the log that the flags of `mpijob logs` mean. */
function logQuery(words: readonly string[]): Record<string, string> {
  const query: Record<string, string> = {};
  words.forEach((word, index) => {
    const key = FLAGS[word];
    const value = words[index + 1];
    if (key && value) query[key] = value;
  });
  return query;
}

/** What a command line of `mpijob` is on this page; a command that the page has no control for stays one. */
export function actionOf(command: string, job: string): FixAction | null {
  const [program, verb, ...words] = command.trim().split(/\s+/);
  if (program !== "mpijob" || !verb) return command ? { kind: "command", command } : null;
  switch (verb) {
    case "retry":
    case "resume":
    case "stacks":
    case "events":
      return { kind: verb };
    case "logs":
      return { kind: "logs", query: logQuery(words) };
    case "top":
      return { kind: "metrics" };
    case "describe":
    case "get":
      return { kind: "workers" };
    case "queue":
    case "quota":
      return { kind: "queue" };
    case "export":
      return { kind: "configuration" };
    case "why":
      return words[0] && !words[0].startsWith("-") && words[0] !== job ? { kind: "job", name: words[0] } : { kind: "command", command };
    default:
      return { kind: "command", command };
  }
}

/** The sentence of a fix without the command lines in it: the page has a control beside it. */
export function fixText(fix: Pick<Fix, "text" | "command">): string {
  let text = fix.text.replace(/\s*\(mpijob [^)]*\)/g, "");
  const command = fix.command ?? "";
  if (command && text.trimEnd().endsWith(command)) text = text.trimEnd().slice(0, -command.length);
  return capitalized(text.replace(/\s*[:;,]\s*$/, "").trim()).replace(/\b\d+[KMGT]i\b/g, quantity); // as the form shows it
}

/** Whether the page can apply a fix by itself: it changes the job's configuration. */
export const isApplicable = (fix: Pick<Fix, "patch">): boolean => Boolean(fix.patch && Object.keys(fix.patch).length);
