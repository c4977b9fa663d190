import { Alert, Breadcrumb, BreadcrumbItem, Button, Card, CardBody, CardTitle, Form, PageSection, Spinner, Title, ToggleGroup, ToggleGroupItem } from "@patternfly/react-core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useRef, useState, type FormEvent } from "react";
import { Link, useNavigate } from "react-router-dom";
import { api, take, type Finding } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { useAsked, useRested, useTitle } from "../hooks";
import { usePlace } from "../queries";
import { isManifest, read, write, type Values } from "./document";
import { FieldInput } from "./FieldInput";
import { Manifest, Script } from "./Foreign";
import { arranged, fieldAt, idOf, STEP_WORDS, STEPS, type Field, type Step } from "./fields";
import { Guide } from "./Guide";
import { PlanPanel } from "./PlanPanel";
import { Review } from "./Review";
import { Room } from "./Room";
import { Advanced, Changes, ErrorSummary, StepsNav } from "./parts";
import { TemplateChoice } from "./Templates";
import { useDraft, useJudgement } from "./useJob";

const YamlEditor = lazy(() => import("./YamlEditor"));
const SKIPPED = "mpijob-type-known";
type View = "form" | "split" | "yaml";
const VIEWS: Record<View, string> = { form: "Form", split: "Split", yaml: "YAML" };

/** Step by step, what will run always beside it; the same text as form, as YAML, or both. */
export function CreateJob() {
  useTitle("Create job");
  const navigate = useNavigate();
  const [params, ask] = useAsked();
  const [from, template, fix] = ["from", "template", "fix"].map((key) => params.get(key) ?? "") as [string, string, string];
  const draft = useDraft({ from, template, fix });
  const judged = useJudgement(draft);
  const { create, error, findings } = judged;
  const job: Values = draft.job ?? {};

  const first: Step = from || template || localStorage.getItem(SKIPPED) ? "basics" : "type";
  const wanted = params.get("step") as Step | null;
  const step: Step = wanted && STEPS.includes(wanted) ? wanted : first;
  const view: View = (params.get("view") as View | null) ?? "form";
  const [seen, setSeen] = useState<ReadonlySet<Step>>(new Set());
  const heading = useRef<HTMLHeadingElement>(null);
  const target = useRef("");
  const set = (key: string, value: string): void => ask((next) => next.set(key, value));
  const go = (next: Step): void => {
    setSeen((was) => new Set([...was, step]));
    set("step", next);
  };
  const before = useRef(step);
  useEffect(() => {
    if (before.current !== step && !target.current) heading.current?.focus(); // whoever listens hears where they are
    before.current = step;
    const wanted = target.current ? document.getElementById(target.current) : null;
    if (wanted) target.current = "";
    wanted?.focus();
  });
  const goTo = (field: Field): void => {
    target.current = idOf(field);
    setSeen((was) => new Set([...was, step]));
    ask((next) => {
      next.set("step", field.step);
      if (next.get("view") === "yaml") next.set("view", "form");
    });
  };

  const place = usePlace();
  const help = useQuery({ queryKey: ["fields"], queryFn: () => take(api.GET("/api/v1/fields")), staleTime: Infinity });
  const namespace = useRested(String(job["namespace"] ?? ""), 500);
  const choices = useQuery({
    queryKey: ["choices", namespace],
    queryFn: () => take(api.GET("/api/v1/choices", { params: { query: namespace ? { namespace } : {} } })),
    placeholderData: keepPreviousData, // the projects stay while those of another are looked at
    retry: false,
    staleTime: 30000,
  });
  const offered = choices.data;
  const looking = choices.isPending || choices.isPlaceholderData || namespace !== String(job["namespace"] ?? "");
  const fields = useMemo(() => arranged(place.data?.cluster ?? false, place.data?.namespace ?? "default"), [place.data]);

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (view === "form" && step !== "review") go(STEPS[STEPS.indexOf(step) + 1] ?? "review");
    else if (judged.ready) create.mutate();
  };
  useEffect(() => {
    if (!create.data) return;
    draft.forget();
    navigate(`/jobs/${create.data.namespace}/${create.data.name}`, { state: { created: true } });
  }, [create.data]); // eslint-disable-line -- once, when it is there

  const at = (field: Field): Finding | undefined => findings.find((one) => fieldAt(one.field ?? "", fields) === field);
  const inputs = (which: (field: Field) => boolean) =>
    fields.filter(which).map((field) => (
      <FieldInput
        key={field.path}
        field={field}
        text={draft.text}
        job={job}
        command={draft.command}
        most={place.data?.max_workers ?? 100}
        help={help.data?.items[field.path]}
        offers={field.offered ? (offered?.[field.offered] ?? (choices.isPending ? undefined : [])) : []}
        volumes={looking ? undefined : { claims: offered?.claims ?? [], connections: offered?.connections ?? [] }}
        finding={at(field)}
        changed={draft.changes.some((one) => fieldAt(one.path, fields) === field)}
        onText={(text) => {
          create.reset();
          draft.setText(text);
        }}
        onCommand={(command) => {
          create.reset();
          draft.setCommand(command);
        }}
      />
    ));

  const workers = Number(read(job, "workers") ?? 4);
  const room = (
    <Room
      plan={judged.plan?.plan}
      fit={judged.fit}
      counsel={judged.counsel}
      workers={workers}
      onWorkers={(count) => draft.setText(write(draft.text, "workers", count))}
      onAdvice={(path, value) => draft.setText(write(draft.text, path, /^\d+$/.test(value) ? Number(value) : value))}
    />
  );
  const unreadable = view !== "yaml" && draft.job === null;
  const reading = <Spinner aria-label="Reading" />;
  const content = (): JSX.Element => {
    const waiting = draft.beginning || place.isPending; // which fields there are depends on the place
    if (waiting && step !== "basics" && (step !== "type" || draft.beginning)) return reading;
    switch (step) {
      case "type":
        return (
          <Guide
            heading="h3"
            onChosen={(kind) => {
              localStorage.setItem(SKIPPED, "1");
              if (kind === "one" && read(job, "workers") === undefined) draft.setText(write(draft.text, "workers", 1));
              go("basics");
            }}
          />
        );
      case "basics":
        return (
          <>
            <TemplateChoice value={template} onChange={(name) => navigate(name ? `/create?template=${encodeURIComponent(name)}` : "/create?step=basics")} />
            {waiting ? reading : inputs((field) => field.step === "basics")}
          </>
        );
      case "advanced":
        return <Advanced fields={fields} job={job} findings={findings} inputs={inputs} />;
      case "review":
        return <Review text={draft.text} job={job} plan={judged.plan} fit={judged.fit} changes={draft.changes} keeps={place.data?.keeps_templates ?? false} />;
      default:
        return <>{inputs((field) => field.step === step)}</>;
    }
  };

  const editor = draft.beginning ? (
    reading
  ) : (
    <Suspense fallback={<Spinner aria-label="Loading the editor" />}>
      <YamlEditor text={draft.text} findings={findings} onText={draft.setText} />
    </Suspense>
  );
  const last = step === "review" || view !== "form";
  return (
    <>
      <PageSection>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>Create job</BreadcrumbItem>
        </Breadcrumb>
        <div className="titled">
          <Title headingLevel="h1">{from ? `Clone and modify ${from}` : "Create job"}</Title>
          <ToggleGroup aria-label="How the job is written">
            {(Object.keys(VIEWS) as View[]).map((one) => (
              <ToggleGroupItem key={one} buttonId={`as-${one}`} text={VIEWS[one]} isSelected={view === one} onChange={() => set("view", one)} />
            ))}
          </ToggleGroup>
        </div>
        {view === "yaml" ? null : <StepsNav step={step} fields={fields} seen={seen} findings={findings} onGo={go} />}
      </PageSection>
      <PageSection isFilled>
        {draft.trouble ? <ProblemAlert error={draft.trouble} /> : null}
        <div className={view === "split" ? "two split" : "two"}>
          <Form onSubmit={submit} noValidate>
            <ErrorSummary fields={fields} error={error} created={Boolean(create.error)} onGo={goTo} />
            {step === "review" ? null : <Changes changes={draft.changes} />}
            {draft.job === null && draft.text.trim() ? <Script text={draft.text} onText={draft.setText} /> : null}
            {view === "yaml" ? (
              editor
            ) : (
              <>
                <h2 className="pf-v6-c-title pf-m-lg" tabIndex={-1} ref={heading}>
                  {STEP_WORDS[step]}
                </h2>
                {unreadable ? (
                  <Alert variant="warning" isInline component="p" title="The YAML cannot be shown as a form as it is">
                    Mend it in the editor first; nothing of it is lost.
                  </Alert>
                ) : isManifest(draft.text) ? (
                  <Manifest text={draft.text} onText={draft.setText} />
                ) : (
                  content()
                )}
              </>
            )}
            <div className="footing">
              {view === "form" && step !== "type" ? (
                <Button variant="secondary" onClick={() => go(STEPS[STEPS.indexOf(step) - 1] ?? "type")}>
                  Back
                </Button>
              ) : null}
              {last ? (
                <Button type="submit" isDisabled={!judged.ready || create.isPending} isLoading={create.isPending}>
                  Create job
                </Button>
              ) : (
                <Button type="submit">{step === "type" ? "Skip: I know that I want an MPI job" : "Next"}</Button>
              )}
              {!last && step !== "type" ? (
                <Button variant="secondary" onClick={() => go("review")}>
                  Review
                </Button>
              ) : null}
              <Button variant="link" onClick={() => navigate("/jobs")}>
                Leave
              </Button>
            </div>
          </Form>
          {view === "split" ? <div>{editor}</div> : null}
          <Card component="section" aria-labelledby="what-will-run" className="beside">
            <CardTitle id="what-will-run" component="h2">
              What will run
            </CardTitle>
            <CardBody className="stack">
              <PlanPanel plan={judged.plan} waiting={!judged.ready} busy={judged.looking} refused={Boolean(error)} />
              {judged.ready ? room : null}
            </CardBody>
          </Card>
        </div>
      </PageSection>
    </>
  );
}
