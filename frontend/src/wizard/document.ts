/** The one text that form and editor share: a job file. The form changes single values in it, so that comments,
 * order and fields that the form does not know stay as they were written. */
import { Document, isCollection, isMap, isNode, LineCounter, parseDocument, type Node } from "yaml";

export type Values = Record<string, unknown>;

const WRITTEN = { lineWidth: 0, flowCollectionPadding: false } as const;
const keys = (path: string): string[] => path.split(".");

const parsed = (text: string): Document => parseDocument(text, { strict: false, uniqueKeys: false });

/** Return what the text says, or null where it is no job file that a form could show. */
export function values(text: string): Values | null {
  try {
    const document = parsed(text);
    if (document.errors.length) return null;
    if (document.contents === null) return {};
    return isMap(document.contents) ? (document.toJS({ maxAliasCount: 100 }) as Values) : null;
  } catch {
    return null; // too many aliases, say: the server will tell
  }
}

/** Whether the text is a script of another scheduler, which can be converted. */
export const isScript = (text: string): boolean => /^#!|^#(SBATCH|PBS|BSUB)\s/m.test(text) && values(text) === null;

/** Whether the text is a resource of a cluster, not a job file. */
export const isManifest = (text: string): boolean => {
  const found = values(text);
  return Boolean(found && "apiVersion" in found && "kind" in found);
};

export function read(value: unknown, path: string): unknown {
  return keys(path).reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), value);
}

/** Return the text with one value changed, or taken out. */
export function write(text: string, path: string, value: unknown): string {
  const document = parsed(text);
  const way = keys(path);
  if (value === undefined) remove(document, way);
  else {
    for (let depth = 1; depth < way.length; depth += 1)
      if (document.contents !== null && !isMap(document.getIn(way.slice(0, depth)))) document.deleteIn(way.slice(0, depth));
    const flow = Array.isArray(value) && value.every((one) => typeof one !== "object");
    document.setIn(way, isNode(value) || typeof value !== "object" ? value : document.createNode(value, { flow }));
  }
  const made = document.toString(WRITTEN);
  return made.trim() === "{}" || made.trim() === "null" ? "" : made;
}

/** Return one part of the text by itself, with the comments in it. */
export function snippet(text: string, path: string): string {
  const node = parsed(text).getIn(keys(path), true);
  if (!isNode(node)) return "";
  const alone = new Document();
  alone.contents = node as never;
  return alone.toString(WRITTEN).trimEnd();
}

/** Return a piece of YAML with its comments, or null where it is none that has parts. */
export function noted(text: string): Node | null {
  const document = parsed(text);
  if (document.errors.length || !isCollection(document.contents)) return null;
  document.contents.commentBefore ??= document.commentBefore;
  return document.contents;
}

function remove(document: Document, way: readonly string[]): void {
  document.deleteIn([...way]);
  for (let depth = way.length - 1; depth > 0; depth -= 1) {
    const left = document.getIn(way.slice(0, depth));
    if (isMap(left) && left.items.length === 0) document.deleteIn(way.slice(0, depth));
  }
}

/** Return the line, from 1, where a field stands; 0 where it does not. */
export function lineOf(text: string, path: string): number {
  const lines = new LineCounter();
  const document = parseDocument(text, { strict: false, uniqueKeys: false, lineCounter: lines });
  for (let way = keys(path); way.length; way = way.slice(0, -1)) {
    const node = document.getIn(way, true) as { range?: [number, number, number] } | undefined;
    if (node?.range) return lines.linePos(node.range[0]).line;
  }
  return 0;
}

export const isObject = (value: unknown): value is Values => typeof value === "object" && value !== null && !Array.isArray(value);

export interface Difference {
  readonly path: string;
  readonly was: string;
  readonly is: string;
}

/** Return how one job differs from another, part by part. */
export function differences(was: unknown, is: unknown, path = ""): Difference[] {
  if (isObject(was) || isObject(is)) {
    const all = new Set([...Object.keys(isObject(was) ? was : {}), ...Object.keys(isObject(is) ? is : {})]);
    return [...all].flatMap((key) =>
      differences(isObject(was) ? was[key] : undefined, isObject(is) ? is[key] : undefined, path ? `${path}.${key}` : key),
    );
  }
  const [before, after] = [JSON.stringify(was) ?? "–", JSON.stringify(is) ?? "–"];
  return before === after ? [] : [{ path, was: before, is: after }];
}

/** Lay a patch over a text: every value of it is written, the rest stays. */
export function patched(text: string, patch: unknown, path = ""): string {
  if (!isObject(patch)) return path ? write(text, path, patch) : text;
  return Object.entries(patch).reduce((made, [key, value]) => patched(made, value, path ? `${path}.${key}` : key), text);
}

export const nextName = (name: string): string => {
  const match = /^(.*?)(?:-(\d+))?$/.exec(name);
  return `${match?.[1] ?? name}-${Number(match?.[2] ?? 1) + 1}`;
};
