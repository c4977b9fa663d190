/** The one place that calls the server. Types come from the OpenAPI document; error sentences come with the answers. */
import createClient from "openapi-fetch";
import { serverUrl } from "./base";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Account = Schemas["Account"];
export type Choices = Schemas["Choices"];
export type Comparison = Schemas["Comparison"];
export type Curves = Schemas["Curves"];
export type Delta = Schemas["Delta"];
export type Diagnosis = Schemas["Diagnosis"];
export type EventScalars = Schemas["EventScalars"];
export type Estimate = Schemas["Estimate"];
export type FieldHelp = Schemas["FieldHelp"];
export type Finding = Schemas["Finding"];
export type Fit = Omit<Schemas["Fit"], "wait_range"> & { wait_range?: readonly number[] | null };
export type Fix = Schemas["Numbered"];
export type Guide = Schemas["Guide"];
export type JobAccount = Schemas["JobAccount"];
export type JobDetail = Omit<Schemas["JobDetail"], "row"> & { row: JobRow };
export type JobEvent = Schemas["Event"];
export type JobList = Schemas["JobList"];
export type JobProgress = Schemas["JobProgress"];
/** A job; with `shownAttempt` one of its attempts, not the job as it stands now. */
export type JobRow = Schemas["JobRow"] & { readonly shownAttempt?: number };
export type JobState = Schemas["JobState"];
export type Kind = Guide["kinds"][string];
export type LauncherState = Schemas["LauncherState"];
export type LogBatch = Schemas["LogBatch"];
export type LogRow = Schemas["LogRow"];
export type MpiProfile = Schemas["MpiProfile"];
export type NodePlace = Schemas["NodePlace"];
export type Overview = Schemas["Overview"];
export type Phase = Schemas["Phase"];
export type Plan = Schemas["Plan"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type Problem = Schemas["Problem"];
export type RankState = Schemas["RankState"];
export type Series = Schemas["Series"];
export type RunRow = Schemas["RunRow"];
export type ScalarSeries = Schemas["ScalarSeries"];
export type SizingReport = Schemas["SizingReport"];
export type Template = Schemas["TemplateRow"];
export type Usage = Schemas["Usage"];
export type Waiting = Schemas["Waiting"];
export type WorkerState = Schemas["WorkerState"];
export type Action = JobRow["actions"][number];
export type ListQuery = NonNullable<paths["/api/v1/trainjobs"]["get"]["parameters"]["query"]>;

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

/** The server's answer when it could not do what was asked. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.message);
  }
}

const UNREACHABLE: Problem = {
  code: "BACKEND_ERROR",
  message: "Can't reach the server",
  hint: "Check that `mpijob ui` is still running. The page reconnects automatically.",
  docs: "docs/troubleshooting/backend_error.md",
};

let csrfToken = "";
export const setCsrfToken = (token: string): void => {
  csrfToken = token;
};

export const api = createClient<paths>({ baseUrl: window.location.origin });
api.use({
  async onRequest({ request }) {
    const { method, headers, signal } = request;
    if (!SAFE_METHODS.has(method)) headers.set("X-MPIJob-CSRF", csrfToken);
    if (!serverUrl("")) return request;
    const { pathname, search } = new URL(request.url);
    const body = SAFE_METHODS.has(method) ? null : await request.text(); // a copied request would stream its body, which needs HTTP/2
    return new Request(serverUrl(pathname + search), { method, headers, signal, ...(body ? { body } : {}) });
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the data of an answer, or throw the server's problem. */
export async function unwrap<T>(call: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE);
  }
  if (!answer.response.ok) {
    const problem = answer.error as Problem | undefined;
    throw new ApiError(answer.response.status, problem?.message ? problem : UNREACHABLE);
  }
  return answer.data as T;
}

interface Draft {
  yaml?: string;
  job?: Record<string, unknown>;
  command_line?: string;
}

/** A draft as a body: openapi-fetch's types take an object of anything for one of nothing. */
export const draftBody = (draft: Draft): never => draft as never;

export const problemOf = (error: unknown): Problem =>
  error instanceof ApiError ? error.problem : { ...UNREACHABLE, code: "INTERNAL", message: error instanceof Error ? error.message : String(error), hint: "" };

export const isUnauthorized = (error: unknown): boolean => error instanceof ApiError && error.status === 401;

/** Read the lines of a log as they come; `onBatch` may be called for hours. */
export async function streamLogLines(path: string, signal: AbortSignal, onBatch: (batch: LogBatch) => void): Promise<void> {
  const response = await fetch(serverUrl(path), { signal, headers: { accept: "application/x-ndjson" } });
  if (!response.ok || !response.body) throw new ApiError(response.status, (await response.json()) as Problem);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) onBatch(JSON.parse(line) as LogBatch);
  }
}

/** Count whether a piece of help was helpful. */
export const sendFeedback = (topic: string, helpful: boolean): Promise<unknown> =>
  unwrap(api.POST("/api/v1/opinions", { body: { topic, helpful } }));

/** What identifies a row: a uid alone may be that of a job in another namespace too. */
export const rowKey = (row: JobRow): string => `${row.namespace}/${row.uid}`;

/** A uid made of the name is no uid: the engine has none. */
const knownUid = (row: JobRow): string => (row.uid.includes("/") ? "" : row.uid);

/** The parameters that name exactly this job: a later job may have its name. */
export const jobParams = (row: JobRow) => ({
  path: { namespace: row.namespace, name: row.name },
  query: knownUid(row) ? { uid: knownUid(row) } : {},
});

/** The same with the attempt that is shown, for what is kept by attempt. */
export const attemptParams = (row: JobRow) => {
  const { path, query } = jobParams(row);
  return { path, query: { ...query, ...(row.shownAttempt ? { attempt: row.shownAttempt } : {}) } };
};

/** What answers about exactly this job and attempt are kept under. */
export const jobKey = (row: JobRow, part: string): readonly unknown[] => ["job", row.namespace, row.name, part, row.uid, row.shownAttempt ?? 0];

/** What the server keeps by job, and not by attempt. */
const BY_JOB = new Set(["bundle"]);

/** The address of something of exactly this job on the server, as `…/export?format=yaml`. */
export function jobUrl(row: JobRow, part: string, query: Record<string, string> = {}): string {
  const known = BY_JOB.has(part) ? jobParams(row).query : attemptParams(row).query;
  const words = new URLSearchParams({ ...query, ...Object.fromEntries(Object.entries(known).map(([key, value]) => [key, String(value)])) });
  const search = words.toString();
  return serverUrl(`/api/v1/trainjobs/${row.namespace}/${row.name}/${part}${search ? `?${search}` : ""}`);
}
