import type { JobDetail } from "../api/client";
import { Terms } from "../components/Terms";

function parts(value: unknown, path = ""): [string, string][] {
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return Object.entries(value).flatMap(([key, one]) => parts(one, path ? `${path}.${key}` : key));
  const words = Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join(" ") : JSON.stringify(value);
  return [[path, typeof value === "string" ? value : (words ?? "")]];
}

/** What was asked for, part by part; what has its default is left out. */
export function Configuration({ detail }: { detail: JobDetail }) {
  const entries = parts(detail.spec).map(([path, value]) => [path, value || "–"] as const);
  return <Terms isHorizontal aria-label="Configuration" entries={entries} />;
}
