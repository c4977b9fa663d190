/** The one place that speaks to the server. Types come from the OpenAPI document; sentences come with the answers. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { at } from "../where";

type Schemas = components["schemas"];
export type Job = Schemas["MPIJob"];
export type JobDetail = Schemas["JobDetail"];
export type JobList = Schemas["JobList"];
export type JobRow = Schemas["JobRow"];
export type JobState = Schemas["JobState"];
export type WorkerState = Schemas["WorkerState"];
export type Finding = Schemas["Finding"];
export type Diagnosis = Schemas["Diagnosis"];
export type Overview = Schemas["Overview"];
export type FieldHelp = Schemas["FieldHelp"];
export type Problem = Schemas["Problem"];
export type Phase = Schemas["Phase"];
export type LogRow = Schemas["LogRow"];
export type LogBatch = Schemas["LogBatch"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type Usage = Schemas["Usage"];
export type JobEvent = Schemas["Event"];
export type Delta = Schemas["Delta"];
export type Action = JobRow["actions"][number];
export type Kind = Schemas["Guide"]["kinds"][string];
export type Fit = Omit<Schemas["Fit"], "wait_range"> & { wait_range?: readonly number[] | null };
export type Plan = Schemas["Plan"];
export type SizingReport = Schemas["SizingReport"];
export type Choices = Schemas["Choices"];
export type ListQuery = NonNullable<paths["/api/v1/trainjobs"]["get"]["parameters"]["query"]>;

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

/** What the server said when it could not do what was asked. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.message);
  }
}

const UNREACHABLE: Problem = {
  code: "BACKEND_ERROR",
  message: "the server does not answer",
  hint: "is `mpijob ui` still running? The page goes on by itself when it is back",
  docs: "docs/troubleshooting/backend_error.md",
};

let csrf = "";
export const setCsrf = (word: string): void => {
  csrf = word;
};

export const api = createClient<paths>({ baseUrl: window.location.origin });
api.use({
  async onRequest({ request }) {
    const { method, headers, signal } = request;
    if (!SAFE.has(method)) headers.set("X-MPIJob-CSRF", csrf);
    if (!at("")) return request;
    const { pathname, search } = new URL(request.url);
    const body = SAFE.has(method) ? null : await request.text(); // a copied request would stream its body, which needs HTTP/2
    return new Request(at(pathname + search), { method, headers, signal, ...(body ? { body } : {}) });
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return what a call answers, or throw the server's problem. */
export async function take<T>(call: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiProblem(0, UNREACHABLE);
  }
  if (!answer.response.ok) {
    const told = answer.error as Problem | undefined;
    throw new ApiProblem(answer.response.status, told?.message ? told : UNREACHABLE);
  }
  return answer.data as T;
}

interface DraftBody {
  yaml?: string;
  job?: Record<string, unknown>;
  command_line?: string;
}

/** A draft as a body: openapi-fetch's types take an object of anything for one of nothing. */
export const sent = (draft: DraftBody): never => draft as never;

export const problemOf = (error: unknown): Problem =>
  error instanceof ApiProblem ? error.problem : { ...UNREACHABLE, code: "INTERNAL", message: String(error), hint: "" };

/** Read the lines of a log as they come; `onBatch` may be called for hours. */
export async function streamLogs(path: string, signal: AbortSignal, onBatch: (batch: LogBatch) => void): Promise<void> {
  const response = await fetch(at(path), { signal, headers: { accept: "application/x-ndjson" } });
  if (!response.ok || !response.body) throw new ApiProblem(response.status, (await response.json()) as Problem);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part) onBatch(JSON.parse(part) as LogBatch);
  }
}

/** Count whether a piece of help was helpful. */
export const vote = (topic: string, helpful: boolean): Promise<unknown> => take(api.POST("/api/v1/opinions", { body: { topic, helpful } }));

/** What identifies a row: a uid alone may be that of a job in another namespace too. */
export const keyOf = (row: JobRow): string => `${row.namespace}/${row.uid}`;

/** The address of exactly this job: a later one of its name is another. */
export const addressOf = (row: JobRow) => ({
  path: { namespace: row.namespace, name: row.name },
  query: row.uid.includes("/") ? {} : { uid: row.uid },
});
