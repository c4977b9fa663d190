import {
  ActionGroup,
  Alert,
  Breadcrumb,
  BreadcrumbItem,
  Button,
  Card,
  CardBody,
  CardTitle,
  ExpandableSection,
  Form,
  FormAlert,
  PageSection,
  Split,
  SplitItem,
  TextArea,
  Title,
  ToggleGroup,
  ToggleGroupItem,
} from "@patternfly/react-core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router-dom";
import { api, problemOf, sent, take, type Finding } from "../api/client";
import { Choice } from "../components/Choice";
import { ProblemAlert } from "../components/ProblemAlert";
import { useRested, useTitle } from "../hooks";
import { asDraft, differences, FIELDS, merged, nextName, read, type Draft, type Field } from "./draft";
import { FieldInput } from "./FieldInput";
import { PlanPanel } from "./PlanPanel";

const KEPT = "mpijob-draft";
const AFTER: readonly string[] = ["code.path", "env"];

interface Writing {
  readonly job: Draft;
  readonly command: string;
}

interface Kept extends Writing {
  readonly from: string;
}

const EMPTY: Writing = { job: { name: "" }, command: "" };

function kept(): Writing {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as Kept | null;
    return found && typeof found.command === "string" ? { job: found.job, command: found.command } : EMPTY;
  } catch {
    return EMPTY;
  }
}

/** Few fields, the plan beside them, the same job as a file behind the second tab. */
export function CreateJob() {
  useTitle("Create job");
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const [from, template] = [params.get("from") ?? "", params.get("template") ?? ""];
  const [writing, setWriting] = useState<Writing>(() => (from || template ? EMPTY : kept()));
  const [origin, setOrigin] = useState<Draft | null>(null);
  const [tab, setTab] = useState<"form" | "yaml">("form");
  const [yaml, setYaml] = useState("");
  const [open, setOpen] = useState(false);
  const place = useQuery({ queryKey: ["place"], queryFn: () => take(api.GET("/api/v1/capabilities")), staleTime: Infinity });
  const help = useQuery({ queryKey: ["fields"], queryFn: () => take(api.GET("/api/v1/fields")), staleTime: Infinity });
  const templates = useQuery({ queryKey: ["templates"], queryFn: () => take(api.GET("/api/v1/templates")) });

  const take_over = useMutation({
    mutationFn: (text: string) => take(api.POST("/api/v1/drafts", { body: { yaml: text } })),
    onSuccess: (reading) => setWriting({ job: { ...asDraft(reading.job), command: undefined }, command: reading.command_line }),
  });

  useEffect(() => {
    if (!from) return;
    const [namespace = "", name = ""] = from.split("/");
    const fix = params.get("fix");
    void begun(namespace, name, fix).then(setOrigin);
  }, [from, params]);

  /** Begin with a copy of a job, with one of the fixes for it laid over. */
  async function begun(namespace: string, name: string, fix: string | null): Promise<Draft> {
    const path = { namespace, name };
    const detail = await take(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: { path } }));
    const told = fix ? await take(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: { path } })) : null;
    const base = asDraft(detail.spec);
    const changed = merged(base, told?.fixes?.find((one) => one.number === Number(fix))?.patch ?? {}) as Draft;
    const reading = await take(api.POST("/api/v1/drafts", { body: sent({ job: { ...changed, name: nextName(name) } }) }));
    setWriting({ job: { ...asDraft(reading.job), command: undefined }, command: reading.command_line });
    return base;
  }

  useEffect(() => {
    const found = templates.data?.items.find((one) => one.name === template);
    if (found) take_over.mutate(found.yaml);
  }, [template, templates.data]); // eslint-disable-line -- taken over once

  useEffect(() => {
    sessionStorage.setItem(KEPT, JSON.stringify({ ...writing, from }));
  }, [writing, from]);

  const body = tab === "yaml" ? { yaml } : { job: { ...writing.job }, command_line: writing.command };
  const asked = useRested(JSON.stringify(body), 350);
  const ready = tab === "yaml" ? yaml.trim() !== "" : Boolean(writing.job.name && writing.command);
  const plan = useQuery({
    queryKey: ["plan", asked],
    queryFn: () => take(api.POST("/api/v1/plan", { body: sent(JSON.parse(asked) as typeof body) })),
    enabled: ready,
    retry: false,
    staleTime: 5000,
  });
  const create = useMutation({
    mutationFn: () => take(api.POST("/api/v1/trainjobs", { body: sent(body) })),
    onSuccess: (row) => {
      sessionStorage.removeItem(KEPT);
      navigate(`/jobs/${row.namespace}/${row.name}`, { state: { created: true } });
    },
  });
  const error = create.error ?? (ready ? plan.error : null);
  const findings: readonly Finding[] = error ? (problemOf(error).findings ?? []) : [];
  const at = (path: string): Finding | undefined =>
    findings.find((one) => one.field === path || (one.field ?? "").startsWith(`${path}.`));
  const placed = new Set(FIELDS.map((field) => field.path));
  const elsewhere = findings.filter((one) => !one.field || ![...placed].some((path) => one.field === path || one.field?.startsWith(`${path}.`)));
  const changes = origin
    ? differences({ ...origin, command: undefined, name: "" }, { ...writing.job, command: undefined, name: "" })
    : [];
  const fields = FIELDS.filter((field) => !field.cluster || place.data?.cluster);
  const inputs = (which: (field: Field) => boolean) =>
    fields
      .filter(which)
      .map((field) => (
        <FieldInput
          key={field.path}
          field={field}
          draft={writing.job}
          command={writing.command}
          help={help.data?.items[field.path]}
          finding={at(field.path)}
          changed={changes.some((one) => one.path === field.path)}
          onChange={(next) => {
            create.reset();
            setWriting((was) => ({ ...was, ...next }));
          }}
        />
      ));

  const choose = async (wanted: "form" | "yaml"): Promise<void> => {
    if (wanted === "yaml") {
      const draft = { job: { ...writing.job }, ...(writing.command ? { command_line: writing.command } : {}) };
      const reading = await take(api.POST("/api/v1/drafts", { body: sent(draft) })).catch(() => null);
      setYaml(reading?.yaml ?? (yaml || `name: ${writing.job.name || "my-job"}\nworkers: ${String(read(writing.job, "workers") ?? 4)}\ncommand: [hostname]\n`));
    } else await take_over.mutateAsync(yaml);
    setTab(wanted);
  };

  return (
    <>
      <PageSection>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>Create job</BreadcrumbItem>
        </Breadcrumb>
        <Title headingLevel="h1">{from ? `Clone and modify ${from}` : "Create job"}</Title>
      </PageSection>
      <PageSection isFilled>
        <div className="two">
          <div>
            <Split hasGutter>
              <SplitItem isFilled>
                <ToggleGroup aria-label="How the job is written">
                  {(["form", "yaml"] as const).map((one) => (
                    <ToggleGroupItem
                      key={one}
                      buttonId={`as-${one}`}
                      text={one === "form" ? "Form" : "YAML"}
                      isSelected={tab === one}
                      onChange={() => void (tab === one ? null : choose(one).catch(() => undefined))}
                    />
                  ))}
                </ToggleGroup>
              </SplitItem>
              <SplitItem>
                <Choice
                  label="Start from a template"
                  value={template}
                  options={[["", "Start from a template"], ...(templates.data?.items ?? []).map((one) => [one.name, one.name] as const)]}
                  onChange={(name) => navigate(name ? `/create?template=${encodeURIComponent(name)}` : "/create")}
                />
              </SplitItem>
            </Split>
            {take_over.error ? <ProblemAlert error={take_over.error} /> : null}
            <Form
              onSubmit={(event) => {
                event.preventDefault();
                create.mutate();
              }}
            >
              {error && (create.error || elsewhere.length || !findings.length) ? (
                <FormAlert>
                  <ProblemAlert error={error} title={create.error ? "The job was not created" : "This job would be refused"} />
                </FormAlert>
              ) : null}
              {changes.length ? (
                <Alert variant="info" isInline title="Changed against the original">
                  <ul data-testid="changes">
                    {changes.map((one) => (
                      <li key={one.path}>
                        {one.path}: {one.was} → {one.is}
                      </li>
                    ))}
                  </ul>
                </Alert>
              ) : null}
              {tab === "form" ? (
                <>
                  {inputs((field) => !field.advanced && !field.small && !AFTER.includes(field.path))}
                  <div className="small">{inputs((field) => Boolean(field.small))}</div>
                  {inputs((field) => AFTER.includes(field.path))}
                  <ExpandableSection toggleText="Advanced" isExpanded={open} onToggle={(_, on) => setOpen(on)} isIndented>
                    <div className="fields">{inputs((field) => Boolean(field.advanced))}</div>
                  </ExpandableSection>
                </>
              ) : (
                <TextArea
                  aria-label="The job as YAML"
                  className="yaml"
                  rows={24}
                  value={yaml}
                  spellCheck={false}
                  onChange={(_, value) => setYaml(value)}
                />
              )}
              <ActionGroup>
                <Button type="submit" isDisabled={!ready || create.isPending} isLoading={create.isPending}>
                  Create job
                </Button>
                <Button variant="link" onClick={() => navigate(-1)}>
                  Leave
                </Button>
              </ActionGroup>
            </Form>
          </div>
          <Card component="section" aria-labelledby="what-will-run">
            <CardTitle id="what-will-run" component="h2">
              What will run
            </CardTitle>
            <CardBody>
              <PlanPanel plan={ready && !plan.error ? plan.data : undefined} waiting={!ready} busy={plan.isFetching} refused={Boolean(error)} />
            </CardBody>
          </Card>
        </div>
      </PageSection>
    </>
  );
}
