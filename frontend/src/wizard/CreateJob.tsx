import {
  Alert,
  Breadcrumb,
  BreadcrumbItem,
  Button,
  Flex,
  FlexItem,
  Form,
  FormFieldGroupExpandable,
  FormFieldGroupHeader,
  PageSection,
  Title,
  ToggleGroup,
  ToggleGroupItem,
  useWizardContext,
  Wizard,
  WizardFooterWrapper,
  WizardStep,
} from "@patternfly/react-core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, type FormEvent, type ReactNode } from "react";
import { Link, useNavigate } from "react-router-dom";
import { api, unwrap, type Finding } from "../api/client";
import { useCapabilities, useFieldHelp } from "../api/queries";
import { PageLoading } from "../components/PageLoading";
import { ProblemAlert } from "../components/ProblemAlert";
import { useDebounced, usePageTitle, useQueryParams } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { isManifest, isScript, read, write, type Values } from "./document";
import { forgetDraft } from "./draftStore";
import { ErrorSummary } from "./ErrorSummary";
import { FieldInput } from "./FieldInput";
import { arrangedFields, CLUSTER_ONLY, fieldAt, inputId, isStep, STEP_LABELS, STEPS, type Field, type Step } from "./fields";
import { ManifestNotice, ScriptNotice } from "./Import";
import { ReviewStep } from "./ReviewStep";
import { StartStep } from "./StartStep";
import { withWorkers } from "./summary";
import { SummaryPanel } from "./SummaryPanel";
import { useDraft, useDraftChecks } from "./useDraft";
import { useNameNote } from "./useNameNote";
import { ALL_PROJECTS } from "../shell/project";
import styles from "./wizard.module.css";

const YamlEditor = lazy(() => import("./YamlEditor"));

type View = "form" | "split" | "yaml";
const VIEWS: Record<View, string> = { form: "Form", split: "Split", yaml: "YAML" };

/** Create a job step by step, as a form, as YAML, or both; a summary shows what will run. */
export function CreateJob() {
  usePageTitle("Create job");
  const navigate = useNavigate();
  const [params, edit] = useQueryParams();
  const [from, template, fix] = ["from", "template", "fix"].map((key) => params.get(key) ?? "") as [string, string, string];
  const project = params.get("namespace") ?? "";
  const draft = useDraft({ from, template, project: project === ALL_PROJECTS ? "" : project, fix });
  const checks = useDraftChecks(draft);
  const { create, error, findings } = checks;
  const job: Values = draft.job ?? {};

  // -- where we are: part of the address ---------------------------------------------------------------
  const hasOrigin = Boolean(from || template);
  const asked = params.get("step");
  const step: Step = isStep(asked) ? asked : hasOrigin || draft.text ? "workload" : "start";
  const view = (Object.keys(VIEWS) as View[]).find((one) => one === params.get("view")) ?? "form";
  const focusOn = useRef("");
  const go = (next: Step): void =>
    edit((query) => {
      query.set("step", next);
      if (query.get("view") === "yaml") query.delete("view");
    });
  const goToField = (field: Field): void => {
    const input = document.getElementById(inputId(field));
    if (input) return input.focus();
    focusOn.current = inputId(field);
    go(field.step);
  };
  const heading = useRef<HTMLHeadingElement>(null);
  const shown = useRef(step);
  const arrive = useCallback((at: Step): void => {
    const target = focusOn.current ? document.getElementById(focusOn.current) : null;
    focusOn.current = "";
    if (target) target.focus();
    else if (shown.current !== at) heading.current?.focus(); // screen readers say which step it is
    shown.current = at;
  }, []);

  // -- what the place offers -----------------------------------------------------------------------------
  const place = useCapabilities();
  const help = useFieldHelp().data;
  const namespace = useDebounced(String(job["namespace"] ?? ""), 500);
  const choices = useQuery({
    queryKey: ["choices", namespace],
    queryFn: () => unwrap(api.GET("/api/v1/choices", { params: { query: namespace ? { namespace } : {} } })),
    placeholderData: keepPreviousData, // the projects stay while those of another are read
    retry: false,
    staleTime: 30_000,
  });
  const offered = choices.data;
  const isReadingChoices = choices.isPending || choices.isPlaceholderData || namespace !== String(job["namespace"] ?? "");
  const fields = useMemo(() => arrangedFields(place.data?.cluster ?? false, place.data?.namespace ?? "default"), [place.data]);
  const nameNote = useNameNote(String(job["name"] ?? ""), String(job["namespace"] ?? place.data?.namespace ?? ""));

  // -- what can be done ------------------------------------------------------------------------------------
  const setText = (text: string): void => {
    create.reset();
    draft.setText(text);
  };
  const submit = (): void => {
    if (checks.isReady && !create.isPending) create.mutate();
  };
  const created = create.data;
  useEffect(() => {
    if (!created) return;
    forgetDraft();
    void navigate(jobPath(created), { state: { created: true } });
  }, [created, navigate]);

  const isForeign = isScript(draft.text) || (isManifest(draft.text) && place.data?.cluster === false); // to be converted first
  const isLoading = draft.isLoading || place.isPending; // which fields there are depends on the place
  const isUnreadable = view !== "yaml" && draft.job === null;
  const inputs = (which: (field: Field) => boolean): ReactNode =>
    fields.filter(which).map((field) => (
      <FieldInput
        key={field.path}
        field={field}
        text={draft.text}
        job={job}
        command={draft.command}
        mostWorkers={place.data?.max_workers ?? 100}
        help={help?.items[field.path]}
        offers={field.offered ? (offered?.[field.offered] ?? (choices.isPending ? undefined : [])) : []}
        volumes={isReadingChoices ? undefined : { claims: offered?.claims ?? [], connections: offered?.connections ?? [] }}
        finding={findings.find((finding) => fieldAt(finding.field ?? "", fields) === field)}
        isChanged={draft.changes.some((change) => fieldAt(change.path, fields) === field)}
        {...(field.path === "name" && nameNote ? { note: nameNote } : {})}
        onText={setText}
        onCommand={(command) => {
          create.reset();
          draft.setCommand(command);
        }}
      />
    ));
  const body = (content: () => ReactNode): ReactNode => {
    if (isLoading) return <PageLoading label="Loading the form" />;
    if (isUnreadable)
      return (
        <Alert variant="warning" isInline component="h3" title="This YAML can't be shown as a form">
          Fix it in the YAML editor. Your text is kept.
        </Alert>
      );
    if (isManifest(draft.text)) return <ManifestNotice text={draft.text} onText={setText} />;
    return content();
  };
  const next = (event: FormEvent): void => {
    event.preventDefault();
    if (step !== "review") go(STEPS[STEPS.indexOf(step) + 1] ?? "review");
  };
  const content = (one: Step): ReactNode => {
    if (one === "start")
      return (
        <StartStep
          hasDraft={Boolean(draft.text.trim())}
          left={draft.left}
          onResume={() => {
            draft.resume();
            go("workload");
          }}
          onDiscard={draft.discard}
          onBlank={(workers) => {
            if (workers) setText(write(draft.text, "workers", workers));
            go("workload");
          }}
          onYaml={() => edit((query) => query.set("view", "yaml"))}
          isHelpOpen={params.get("help") === "true"}
        />
      );
    return body(() => {
      if (one === "review") return <ReviewStep draft={draft} job={job} fields={fields} onEdit={go} />;
      return (
        <Form onSubmit={next} noValidate>
          {one === "options" ? <Options fields={fields} job={job} findings={findings} inputs={inputs} /> : inputs((field) => field.step === one)}
          <button type="submit" hidden aria-hidden tabIndex={-1} />
        </Form>
      );
    });
  };

  const editor = draft.isLoading ? (
    <PageLoading label="Loading the job" />
  ) : (
    <Suspense fallback={<PageLoading label="Loading the editor" />}>
      <YamlEditor text={draft.text} findings={findings} onText={setText} />
    </Suspense>
  );
  const cancel = (): void => void navigate("/jobs");
  const withErrors = new Set(findings.map((finding) => fieldAt(finding.field ?? "", fields)?.step));
  const summary = (
    <SummaryPanel
      checks={checks}
      isForeign={isForeign}
      workers={Number(read(job, "workers") ?? 4)}
      onWorkers={(count) => setText(withWorkers(draft.text, job, count))}
      onAdvice={(path, value) => setText(write(draft.text, path, /^\d+$/.test(value) ? Number(value) : value))}
    />
  );
  const createButton = (
    <Button isDisabled={!checks.isReady || isForeign || create.isPending} isLoading={create.isPending} onClick={submit}>
      Create job
    </Button>
  );
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>Create job</BreadcrumbItem>
        </Breadcrumb>
        <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
          <FlexItem>
            <Title headingLevel="h1">{from ? `Clone ${from.split("/").at(-1)}` : "Create training job"}</Title>
          </FlexItem>
          <ToggleGroup aria-label="Editor view">
            {(Object.keys(VIEWS) as View[]).map((one) => (
              <ToggleGroupItem key={one} buttonId={`view-${one}`} text={VIEWS[one]} isSelected={view === one} onChange={() => edit((query) => query.set("view", one))} />
            ))}
          </ToggleGroup>
        </Flex>
      </PageSection>
      <PageSection isFilled hasBodyWrapper={false}>
        {draft.error ? <ProblemAlert error={draft.error} /> : null}
        <div className={view === "split" ? styles["split"] : step === "start" && view === "form" ? styles["wide"] : styles["layout"]}>
          <div className={styles["column"]}>
            {isForeign && !create.error ? null : <ErrorSummary fields={fields} error={error} isRefused={Boolean(create.error)} onGo={goToField} />}
            {isScript(draft.text) ? <ScriptNotice text={draft.text} onText={setText} /> : null}
            {view === "yaml" ? (
              <>
                {isManifest(draft.text) ? <ManifestNotice text={draft.text} onText={setText} /> : null}
                {editor}
                <Flex>
                  {createButton}
                  <Button variant="link" onClick={cancel}>
                    Cancel
                  </Button>
                </Flex>
              </>
            ) : (
              <Wizard
                className={styles["wizard"] ?? ""}
                navAriaLabel="Steps"
                shouldFocusContent={false}
                height="auto"
                startIndex={STEPS.indexOf(step) + 1}
                onStepChange={(_, current) => {
                  if (isStep(String(current.id)) && current.id !== step) go(current.id as Step);
                }}
                footer={<Footer step={step} onGo={go} onCancel={cancel} createButton={createButton} />}
              >
                {STEPS.map((one) => (
                  <WizardStep key={one} id={one} name={STEP_LABELS[one]} {...(withErrors.has(one) ? { status: "error" as const } : {})} body={{ "aria-label": STEP_LABELS[one] }}>
                    <StepSync step={step} own={one} onArrive={arrive} />
                    <h2 ref={heading} tabIndex={-1} className={styles["stepHeading"]}>
                      {STEP_LABELS[one]}
                    </h2>
                    {content(one)}
                  </WizardStep>
                ))}
              </Wizard>
            )}
          </div>
          {step === "start" && view === "form" ? null : (
            <div className={view === "split" ? styles["column"] : styles["beside"]}>
              {view === "split" ? editor : null}
              {summary}
            </div>
          )}
        </div>
      </PageSection>
    </>
  );
}

interface StepSyncProps {
  /** The step of the address. */
  step: Step;
  /** The step in whose content this stands: only that of the step in sight is there. */
  own: Step;
  onArrive: (step: Step) => void;
}

/** Keeps the wizard at the step of the address, and tells when it is there. */
function StepSync({ step, own, onArrive }: StepSyncProps) {
  const { activeStep, goToStepById } = useWizardContext();
  const at = activeStep?.id;
  useEffect(() => {
    if (at !== step) goToStepById(step);
  }, [at, step, goToStepById]);
  useEffect(() => {
    if (own === step) onArrive(step);
  }, [own, step, onArrive]);
  return null;
}

interface FooterProps {
  step: Step;
  onGo: (step: Step) => void;
  onCancel: () => void;
  createButton: ReactNode;
}

function Footer({ step, onGo, onCancel, createButton }: FooterProps) {
  const at = STEPS.indexOf(step);
  const isLast = step === "review";
  return (
    <WizardFooterWrapper>
      <Flex gap={{ default: "gapSm" }}>
        {at > 0 ? (
          <Button variant="secondary" onClick={() => onGo(STEPS[at - 1] ?? "start")}>
            Back
          </Button>
        ) : null}
        {isLast ? (
          createButton
        ) : (
          <Button variant={step === "start" ? "secondary" : "primary"} onClick={() => onGo(STEPS[at + 1] ?? "review")}>
            Next
          </Button>
        )}
        {isLast || step === "start" ? null : (
          <Button variant="secondary" onClick={() => onGo("review")}>
            Review and create
          </Button>
        )}
        <Button variant="link" onClick={onCancel}>
          Cancel
        </Button>
      </Flex>
    </WizardFooterWrapper>
  );
}

interface OptionsProps {
  fields: readonly Field[];
  job: Values;
  findings: readonly Finding[];
  inputs: (which: (field: Field) => boolean) => ReactNode;
}

/** What most jobs leave as it is, group by group; a group in which something is wrong is open. */
function Options({ fields, job, findings, inputs }: OptionsProps) {
  const own = fields.filter((field) => field.step === "options");
  const groups = [...new Set(own.map((field) => field.group ?? ""))];
  return (
    <>
      <p>All settings on this page are optional.</p>
      {groups.map((group) => {
        const set = own.filter((field) => field.group === group && read(job, field.path) !== undefined).length;
        const isWrong = findings.some((finding) => fieldAt(finding.field ?? "", fields)?.group === group);
        return (
          <FormFieldGroupExpandable
            key={`${group}${isWrong}`}
            isExpanded={isWrong}
            toggleAriaLabel={group}
            header={
              <FormFieldGroupHeader
                titleText={{ text: set ? `${group} (${set} set)` : group, id: `group-${group.replace(/\W+/g, "-")}` }}
                {...(group === CLUSTER_ONLY ? { titleDescription: "Kept in the job file; this machine ignores them." } : {})}
              />
            }
          >
            {inputs((field) => field.step === "options" && field.group === group)}
          </FormFieldGroupExpandable>
        );
      })}
    </>
  );
}
