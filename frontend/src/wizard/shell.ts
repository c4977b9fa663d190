/** A command as people type it, and as the words that a job file holds: split and joined as a POSIX shell does. */

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Return the words of a line, or null while a quotation is open. */
export function split(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const one = line.charAt(at);
    if (quote === "'" || (quote === '"' && one !== "\\")) {
      if (one === quote) quote = "";
      else word = (word ?? "") + one;
    } else if (quote === '"') {
      const next = line.charAt((at += 1));
      if (next === "") return null;
      word = (word ?? "") + ('"\\$`'.includes(next) ? next : one + next);
    } else if (one === "'" || one === '"') {
      quote = one;
      word ??= "";
    } else if (one === "\\") {
      const next = line.charAt((at += 1));
      if (next === "") return null;
      word = (word ?? "") + next;
    } else if (/\s/.test(one)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + one;
  }
  if (quote) return null;
  return word === null ? words : [...words, word];
}

/** One word as a shell reads it back, in the quotation that is easiest to read. */
export function quoted(word: string): string {
  if (PLAIN.test(word)) return word;
  if (word.includes("'") && !/["$`\\!]/.test(word)) return `"${word}"`;
  return `'${word.replaceAll("'", `'"'"'`)}'`;
}

export const join = (words: readonly string[]): string => words.map(quoted).join(" ");
