/** The job that is being written: one text, kept in the tab; where it came from; what the server says about it. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, problemOf, sent, take, type Finding } from "../api/client";
import { useRested } from "../hooks";
import { differences, nextName, patched, read, values, write, type Difference, type Values } from "./document";
import { isInitial } from "./fields";
import { forget, keep, kept } from "./kept";
import { join, split } from "./shell";

interface Origin {
  readonly from: string;
  readonly template: string;
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

function before(): Written {
  const found = kept();
  return found ? { ...written(found.text), ...(found.command === undefined ? {} : { command: found.command }) } : EMPTY;
}

/** A copy of a job, with one of the fixes for it laid over. */
async function copied({ from, fix }: Origin): Promise<{ text: string; origin: Values }> {
  const [namespace = "", name = ""] = from.split("/");
  const path = { namespace, name };
  const yaml = await take(api.GET("/api/v1/trainjobs/{namespace}/{name}/export", { params: { path, query: { values: true } }, parseAs: "text" }) as Promise<{ data?: string; response: Response }>);
  const told = fix ? await take(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: { path } })) : null;
  const patch = told?.fixes?.find((one) => one.number === Number(fix))?.patch ?? {};
  return { text: write(patched(yaml, patch), "name", nextName(name)), origin: values(yaml) ?? {} };
}

async function templated(name: string): Promise<string> {
  const found = (await take(api.GET("/api/v1/templates"))).items.find((one) => one.name === name);
  if (!found) throw new Error(`there is no template ${name}`);
  return found.yaml;
}

export interface Draft {
  readonly text: string;
  readonly command: string;
  /** What the text says; null while it is no job file. */
  readonly job: Values | null;
  readonly changes: readonly Difference[];
  /** While it is still being read where it comes from: nothing can be typed yet that would be lost. */
  readonly beginning: boolean;
  readonly trouble: unknown;
  setText: (text: string) => void;
  setCommand: (command: string) => void;
  forget: () => void;
}

export function useDraft(origin: Origin): Draft {
  const foreign = Boolean(origin.from || origin.template);
  const [now, setNow] = useState<Written>(() => (foreign ? EMPTY : before()));
  const [was, setWas] = useState<Values | null>(null);
  const begin = useMutation({
    mutationFn: async (asked: Origin) => (asked.from ? copied(asked) : { text: await templated(asked.template), origin: null }),
    onSuccess: (made) => {
      setNow(written(made.text));
      setWas(made.origin);
    },
  });
  useEffect(() => {
    if (foreign) begin.mutate(origin);
  }, [origin.from, origin.template, origin.fix]); // eslint-disable-line -- begun once for each origin
  useEffect(() => {
    if (now !== EMPTY) keep(now);
  }, [now]);
  const job = useMemo(() => values(now.text), [now.text]);
  const changes = useMemo(
    () => (was && job ? differences({ ...was, name: "" }, { ...job, name: "" }).filter((one) => one.was !== "–" || !isInitial(one.path, one.is)) : []),
    [was, job],
  );
  return {
    ...now,
    job,
    changes,
    beginning: foreign && (begin.isPending || JSON.stringify(begin.variables) !== JSON.stringify(origin)),
    trouble: begin.error,
    setText: (text) => setNow((old) => ({ text, command: sameCommand(old, text) ? old.command : commandOf(values(text)) })),
    setCommand: (command) =>
      setNow((old) => {
        const words = split(command);
        return { command, text: words === null ? old.text : write(old.text, "command", words.length ? words : undefined) };
      }),
    forget,
  };
}

/** Whether a new text still has the command that was typed: then it stays as it was typed. */
function sameCommand(old: Written, text: string): boolean {
  const [before, after] = [read(values(old.text), "command"), read(values(text), "command")];
  return JSON.stringify(before) === JSON.stringify(after);
}

/** What the server says: the plan, whether there is room, what earlier runs used, and all that is wrong. */
export function useJudgement(draft: Draft) {
  const open = split(draft.command) === null;
  const body = open ? { job: { ...draft.job }, command_line: draft.command } : { yaml: draft.text };
  const asked = useRested(JSON.stringify(body), 300);
  const fresh = asked === JSON.stringify(body);
  const ready = draft.job === null ? draft.text.trim() !== "" : Boolean(draft.job["name"] && (draft.command.trim() || draft.job["programs"] || draft.job["script"] || draft.job["apiVersion"]));
  const question = { enabled: ready && fresh, retry: false, staleTime: 5000 } as const; // what is not typed to its end is not asked
  const plan = useQuery({
    queryKey: ["plan", asked],
    queryFn: () => take(api.POST("/api/v1/plan", { body: sent(JSON.parse(asked) as typeof body) })),
    ...question,
  });
  const valid = ready && fresh && !open && draft.job !== null;
  const fit = useQuery({
    queryKey: ["fit", asked],
    queryFn: () => take(api.POST("/api/v1/fit", { body: sent(JSON.parse(asked) as typeof body) })),
    ...question,
    enabled: valid,
  });
  const advice = useQuery({
    queryKey: ["advice", asked],
    queryFn: () => take(api.POST("/api/v1/drafts/advice", { body: sent(JSON.parse(asked) as typeof body) })),
    ...question,
    enabled: valid,
    staleTime: 60000,
  });
  const create = useMutation({ mutationFn: () => take(api.POST("/api/v1/trainjobs", { body: sent(body) })) });
  const error = create.error ?? (ready && fresh ? plan.error : null);
  const findings: readonly Finding[] = error ? (problemOf(error).findings ?? []) : [];
  return {
    ready,
    plan: ready && !plan.error ? plan.data : undefined,
    fit: ready && !fit.error ? fit.data : undefined,
    counsel: advice.data?.counsel,
    looking: plan.isFetching || !fresh,
    create,
    error,
    findings,
  };
}
