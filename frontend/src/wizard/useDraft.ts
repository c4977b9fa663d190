/** The job that is being written: one text, kept in the tab; where it came from; what the server says about it. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, draftBody, problemOf, unwrap, type Finding } from "../api/client";
import { useDebounced } from "../lib/hooks";
import { differences, nextName, patched, read, values, write, type Difference, type Values } from "./document";
import { forgetDraft, leaveDraft, storedDraft, storeDraft } from "./draftStore";
import { isInitial } from "./fields";
import { join, split } from "./shell";

export interface Origin {
  /** A job to copy, as `namespace/name`. */
  readonly from: string;
  readonly template: string;
  /** The project that shares the template; "" is the user's own. */
  readonly project: string;
  /** The number of a fix that the copy gets. */
  readonly fix: string;
}

interface Written {
  readonly text: string;
  readonly command: string;
}

const EMPTY: Written = { text: "", command: "" };

const commandOf = (job: Values | null): string => {
  const words = job?.["command"];
  return Array.isArray(words) ? join(words.map(String)) : typeof words === "string" ? words : "";
};

const written = (text: string): Written => ({ text, command: commandOf(values(text)) });

function stored(): Written {
  const draft = storedDraft();
  return draft ? { ...written(draft.text), ...(draft.command === undefined ? {} : { command: draft.command }) } : EMPTY;
}

const MOST_TRIES = 50;

/** The first name after this one that no job of the project has. */
async function freeName(name: string, namespace: string, isTaken: boolean): Promise<string> {
  const list = await unwrap(api.GET("/api/v1/trainjobs", { params: { query: { text: name.replace(/-\d+$/, ""), limit: 500, ...(namespace ? { namespace } : {}) } } }));
  const names = new Set(list.items.map((row) => row.name));
  let next = isTaken || names.has(name) ? nextName(name) : name;
  for (let tries = 0; names.has(next) && tries < MOST_TRIES; tries += 1) next = nextName(next);
  return next;
}

interface Begun {
  readonly text: string;
  /** The job that was copied. */
  readonly origin: Values | null;
}

/** A copy of a job, with one of its fixes laid over. */
async function copied({ from, fix }: Origin): Promise<Begun> {
  const [namespace = "", name = ""] = from.split("/");
  const path = { namespace, name };
  const [yaml, diagnosis, next] = await Promise.all([
    unwrap(
      api.GET("/api/v1/trainjobs/{namespace}/{name}/export", { params: { path, query: { values: true } }, parseAs: "text" }) as Promise<{
        data?: string;
        response: Response;
      }>,
    ),
    fix ? unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: { path } })) : null,
    freeName(name, namespace, true),
  ]);
  const patch = diagnosis?.fixes?.find((one) => one.number === Number(fix))?.patch ?? {};
  return { text: write(patched(yaml, patch), "name", next), origin: values(yaml) ?? {} };
}

async function fromTemplate(name: string, project: string): Promise<Begun> {
  const query = project ? { namespace: project } : {};
  const template = (await unwrap(api.GET("/api/v1/templates", { params: { query } }))).items.find((one) => one.name === name);
  if (!template) throw new Error(`Template ${name} not found`);
  const job = values(template.yaml) ?? {};
  return { text: write(template.yaml, "name", await freeName(String(job["name"] ?? name), String(job["namespace"] ?? ""), false)), origin: null };
}

export interface Draft {
  readonly text: string;
  readonly command: string;
  /** What the text says; null while it is no job file. */
  readonly job: Values | null;
  readonly changes: readonly Difference[];
  /** Whether its origin is still being read: nothing can be typed yet that would be lost. */
  readonly isLoading: boolean;
  readonly error: unknown;
  /** A draft that was left before, by its name; "" where there is none. */
  readonly left: string;
  setText: (text: string) => void;
  setCommand: (command: string) => void;
  resume: () => void;
  discard: () => void;
}

export function useDraft(origin: Origin): Draft {
  const { from, template, project, fix } = origin;
  const hasOrigin = Boolean(from || template);
  const [current, setCurrent] = useState<Written>(() => (!hasOrigin && storedDraft()?.isOpen ? stored() : EMPTY));
  const [original, setOriginal] = useState<Values | null>(null);
  const [left, setLeft] = useState(() => leftDraft(hasOrigin));
  const begin = useMutation({
    mutationFn: (asked: Origin): Promise<Begun> => (asked.from ? copied(asked) : fromTemplate(asked.template, asked.project)),
    onSuccess: (made) => {
      setCurrent(written(made.text));
      setOriginal(made.origin);
    },
  });
  const { mutate } = begin;
  useEffect(() => {
    if (from || template) mutate({ from, template, project, fix });
  }, [from, template, project, fix, mutate]);
  useEffect(() => {
    if (current !== EMPTY) storeDraft(current);
  }, [current]);
  useEffect(() => leaveDraft, []);
  const job = useMemo(() => values(current.text), [current.text]);
  const changes = useMemo(
    () => (original && job ? differences({ ...original, name: "" }, { ...job, name: "" }).filter((one) => one.was !== "–" || !isInitial(one.path, one.is)) : []),
    [original, job],
  );
  return {
    ...current,
    job,
    changes,
    isLoading: hasOrigin && !begin.isSuccess && !begin.isError,
    error: begin.error,
    left,
    setText: (text) => setCurrent((before) => ({ text, command: sameCommand(before, text) ? before.command : commandOf(values(text)) })),
    setCommand: (command) =>
      setCurrent((before) => {
        const words = split(command);
        return { command, text: words === null ? before.text : write(before.text, "command", words.length ? words : undefined) };
      }),
    resume: () => {
      setCurrent(stored());
      setLeft("");
    },
    discard: () => {
      forgetDraft();
      setLeft("");
    },
  };
}

/** The name of a draft that was left, where a new job begins from nothing. */
function leftDraft(hasOrigin: boolean): string {
  const draft = hasOrigin ? null : storedDraft();
  if (!draft || draft.isOpen) return "";
  return String(values(draft.text)?.["name"] ?? "") || "without a name";
}

/** Whether a new text still has the command that was typed: then it stays as it was typed. */
function sameCommand(before: Written, text: string): boolean {
  const [was, is] = [read(values(before.text), "command"), read(values(text), "command")];
  return JSON.stringify(was) === JSON.stringify(is);
}

/** What the server says: the plan, whether it fits, what earlier runs used, and all that is wrong. */
export function useDraftChecks(draft: Draft) {
  const isOpen = split(draft.command) === null;
  const body = isOpen ? { job: { ...draft.job }, command_line: draft.command } : { yaml: draft.text };
  const asked = useDebounced(JSON.stringify(body), 300);
  const isSettled = asked === JSON.stringify(body);
  const isReady =
    draft.job === null
      ? draft.text.trim() !== ""
      : Boolean(draft.job["apiVersion"] || (draft.job["name"] && (draft.command.trim() || draft.job["programs"] || draft.job["script"])));
  const question = { enabled: isReady && isSettled, retry: false, staleTime: 5000 } as const; // what is not typed to its end is not asked
  const asBody = (): never => draftBody(JSON.parse(asked) as typeof body);
  const plan = useQuery({ queryKey: ["plan", asked], queryFn: () => unwrap(api.POST("/api/v1/plan", { body: asBody() })), ...question });
  const isWhole = isReady && isSettled && !isOpen && draft.job !== null;
  const fit = useQuery({ queryKey: ["fit", asked], queryFn: () => unwrap(api.POST("/api/v1/fit", { body: asBody() })), ...question, enabled: isWhole });
  const advice = useQuery({
    queryKey: ["advice", asked],
    queryFn: () => unwrap(api.POST("/api/v1/drafts/advice", { body: asBody() })),
    ...question,
    enabled: isWhole,
    staleTime: 60_000,
  });
  const create = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/trainjobs", { body: draftBody(body) })) });
  const error = create.error ?? (isReady && isSettled ? plan.error : null);
  const findings: readonly Finding[] = error ? (problemOf(error).findings ?? []) : [];
  return {
    isReady,
    isChecking: plan.isFetching || !isSettled,
    plan: isReady && !plan.error ? plan.data : undefined,
    fit: isReady && !fit.error ? fit.data : undefined,
    sizing: advice.data?.counsel,
    estimate: advice.data?.estimate ?? undefined,
    create,
    error,
    findings,
  };
}

export type DraftChecks = ReturnType<typeof useDraftChecks>;
