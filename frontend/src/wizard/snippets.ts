/** The same job on the command line and in Python. */
import { isObject, read, type Values } from "./document";
import { join, quoted } from "./shell";

const FLAGS: readonly (readonly [string, string])[] = [
  ["namespace", "-n"],
  ["image", "--image"],
  ["workers", "--workers"],
  ["slots", "--slots"],
  ["resources.cpu", "--cpu"],
  ["resources.memory", "--memory"],
  ["resources.gpu", "--gpu"],
];
const TOLD = new Set(["name", "namespace", "image", "workers", "slots", "resources", "command", "env"]);

/** Return a command line that creates the job; what has no flag goes by a file. */
export function asCommand(job: Values, text: string): string {
  const resources = read(job, "resources");
  const plain =
    Object.keys(job).every((key) => TOLD.has(key)) &&
    (!isObject(resources) || Object.keys(resources).every((key) => ["cpu", "memory", "gpu"].includes(key)));
  if (!plain || !Array.isArray(job["command"])) return `mpijob create -f - <<'END'\n${text.trimEnd()}\nEND`;
  const parts = ["mpijob", "create", quoted(String(job["name"] ?? ""))];
  for (const [path, flag] of FLAGS) {
    const value = read(job, path);
    if (value !== undefined && value !== null) parts.push(flag, quoted(String(value)));
  }
  for (const [key, value] of Object.entries(isObject(job["env"]) ? job["env"] : {})) parts.push("--env", quoted(`${key}=${String(value)}`));
  return `${parts.join(" ")} -- ${join(job["command"].map(String))}`;
}

const CLASSES: Record<string, string> = { resources: "Resources", launcher: "Resources", retry: "Retry", code: "Code", launch: "Launch", placement: "Placement", network: "Network", signal: "Signal", retention: "Retention" };

const LISTS: Record<string, string> = { volumes: "Volume", programs: "Program", secrets: "Secret", groups: "WorkerGroup" };

function literal(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Return a field's value as Python; `used` gets the classes that it needs. */
function python(key: string, value: unknown, used: Set<string>): string {
  const called = (name: string, fields: Values): string => {
    used.add(name);
    return `${name}(${Object.entries(fields).map(([field, one]) => `${field}=${python(field, one, used)}`).join(", ")})`;
  };
  const [one, each] = [CLASSES[key], LISTS[key]];
  if (one && isObject(value)) return called(one, value);
  return each && Array.isArray(value) ? `[${value.filter(isObject).map((part) => called(each, part)).join(", ")}]` : literal(value);
}

/** Return the Python that creates the job. */
export function asPython(job: Values): string {
  const used = new Set<string>();
  const lines = Object.entries(job).map(([key, value]) => `    ${key}=${python(key, value, used)},`);
  const more = used.size ? `from mpijob.model import ${[...used].sort().join(", ")}\n` : "";
  return `from mpijob import Client, MPIJob\n${more}\njob = MPIJob(\n${lines.join("\n")}\n)\nClient().submit(job)\n`;
}
