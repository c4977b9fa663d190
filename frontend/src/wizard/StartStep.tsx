import {
  Alert,
  AlertActionLink,
  Button,
  Card,
  CardBody,
  CardFooter,
  CardHeader,
  CardTitle,
  EmptyState,
  EmptyStateBody,
  Flex,
  FlexItem,
  Gallery,
  HelperText,
  HelperTextItem,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
  Skeleton,
  ToggleGroup,
  ToggleGroupItem,
} from "@patternfly/react-core";
import CodeIcon from "@patternfly/react-icons/dist/esm/icons/code-icon";
import CopyIcon from "@patternfly/react-icons/dist/esm/icons/copy-icon";
import PlusIcon from "@patternfly/react-icons/dist/esm/icons/plus-icon";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { useNavigate } from "react-router-dom";
import { api, problemOf, unwrap, type Template } from "../api/client";
import { useTemplates } from "../api/queries";
import { ActionMenu } from "../components/ActionMenu";
import { ProblemAlert } from "../components/ProblemAlert";
import { SelectMenu } from "../components/SelectMenu";
import { Time } from "../components/Time";
import { capitalized, plural } from "../lib/format";
import { clonePath } from "../lib/links";
import { useProject } from "../shell/project";
import { useToasts } from "../shell/toasts";
import { Guide } from "./Guide";
import { ORIGINS, startersFirst, templatePath } from "./templates";
import styles from "./wizard.module.css";

interface Props {
  /** Whether something has been typed that a template would replace. */
  hasDraft: boolean;
  /** A draft that was left before, by its name. */
  left: string;
  onResume: () => void;
  onDiscard: () => void;
  /** Begin with nothing; one worker where the program needs no more. */
  onBlank: (workers?: number) => void;
  onYaml: () => void;
  isHelpOpen: boolean;
}

/** Begin with nothing, a file, an earlier job or a template; or be asked which type of job suits. */
export function StartStep({ hasDraft, left, onResume, onDiscard, onBlank, onYaml, isHelpOpen }: Props) {
  const [help, setHelp] = useState(isHelpOpen);
  const navigate = useNavigate();
  if (help)
    return (
      <div className={styles["column"]}>
        <div className={styles["kindHead"]}>
          <h3 className={styles["heading"]}>Find the right job type</h3>
          <Button variant="link" isInline onClick={() => setHelp(false)}>
            Back to all options
          </Button>
        </div>
        <Guide
          startsAsking
          heading="h4"
          onChosen={(key, kind) => {
            if (kind.template) void navigate(templatePath(kind.template));
            else onBlank(key === "one" ? 1 : undefined);
          }}
        />
      </div>
    );
  return (
    <div className={styles["column"]}>
      {left ? (
        <Alert
          isInline
          variant="info"
          component="h3"
          title={`You have a draft: ${left}`}
          actionLinks={
            <>
              <AlertActionLink onClick={onResume}>Resume draft</AlertActionLink>
              <AlertActionLink onClick={onDiscard}>Start new</AlertActionLink>
            </>
          }
        />
      ) : null}
      <Gallery hasGutter minWidths={{ default: "12rem" }} component="ul" aria-label="Start from">
        <Tile icon={<PlusIcon />} title="Blank job" text="Fill in the form." action="Start blank" onClick={() => onBlank()} />
        <Tile icon={<CodeIcon />} title="YAML or script" text="Paste a job file, a Kubernetes manifest, or a Slurm or PBS script." action="Open editor" onClick={onYaml} />
        <CloneTile />
        <Tile icon={<QuestionCircleIcon />} title="Not sure?" text="Answer two questions to find the right job type." action="Help me choose" onClick={() => setHelp(true)} />
      </Gallery>
      <TemplateGallery hasDraft={hasDraft} />
    </div>
  );
}

interface TileProps {
  icon: ReactNode;
  title: string;
  text: string;
  action: string;
  onClick: () => void;
}

function Tile({ icon, title, text, action, onClick }: TileProps) {
  return (
    <li>
      <Card isCompact isFullHeight isClickable>
        <CardHeader selectableActions={{ onClickAction: onClick, selectableActionAriaLabel: action, name: "start" }}>
          <CardTitle component="h3">
            {icon} {title}
          </CardTitle>
        </CardHeader>
        <CardBody>{text}</CardBody>
      </Card>
    </li>
  );
}

const RECENT = 20;

/** A copy of an earlier job. */
function CloneTile() {
  const navigate = useNavigate();
  const jobs = useQuery({
    queryKey: ["jobs", "recent"],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query: { limit: RECENT } } })),
    retry: false,
  });
  const rows = jobs.data?.items ?? [];
  return (
    <li>
      <Card isCompact isFullHeight>
        <CardTitle component="h3">
          <CopyIcon /> Earlier job
        </CardTitle>
        <CardBody>
          <SelectMenu
            label="Clone a job"
            value=""
            isFullWidth
            isDisabled={!rows.length}
            options={[
              { value: "", label: rows.length ? "Choose a job" : "No jobs yet" },
              ...rows.map((row) => ({ value: `${row.namespace}/${row.name}`, label: row.name, description: `${row.phase}, ${row.namespace}` })),
            ]}
            onChange={(job) => {
              const [namespace = "", name = ""] = job.split("/");
              if (name) void navigate(clonePath({ namespace, name }));
            }}
          />
        </CardBody>
      </Card>
    </li>
  );
}

/** Templates of the library, the team and the user; what runs here comes first. */
function TemplateGallery({ hasDraft }: { hasDraft: boolean }) {
  const [project] = useProject();
  const templates = useTemplates(project);
  const navigate = useNavigate();
  const [origin, setOrigin] = useState("");
  const [wanted, setWanted] = useState<Template | null>(null);
  const all = startersFirst(templates.data?.items ?? []);
  const shown = all.filter((template) => !origin || template.origin === origin);
  const use = (template: Template): void => (hasDraft ? setWanted(template) : void navigate(templatePath(template.name, project)));
  return (
    <section aria-labelledby="templates-title" className={styles["section"] ?? ""}>
      <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
        <FlexItem>
          <h3 id="templates-title" className={styles["heading"]}>
            Templates
          </h3>
        </FlexItem>
        <ToggleGroup aria-label="Templates of">
          <ToggleGroupItem text="All" buttonId="templates-all" isSelected={!origin} onChange={() => setOrigin("")} />
          {Object.entries(ORIGINS).map(([key, label]) => (
            <ToggleGroupItem key={key} text={label} buttonId={`templates-${key}`} isSelected={origin === key} onChange={() => setOrigin(key)} />
          ))}
        </ToggleGroup>
      </Flex>
      {templates.error ? <ProblemAlert error={templates.error} /> : null}
      {templates.data?.notice ? <Alert isInline isPlain variant="info" component="h4" title={capitalized(templates.data.notice)} /> : null}
      {templates.isPending ? <Skeleton height="8rem" screenreaderText="Loading templates" /> : null}
      {templates.data && !shown.length ? (
        <EmptyState titleText={origin === "own" ? "No templates of your own yet" : "No templates here"} headingLevel="h4" variant="sm">
          <EmptyStateBody>Save a job as a template in the last step of this form.</EmptyStateBody>
        </EmptyState>
      ) : null}
      <Gallery hasGutter minWidths={{ default: "15rem" }} component="ul" aria-label="Templates" className={styles["gallery"]}>
        {shown.map((template) => (
          <li key={`${template.origin}/${template.name}`}>
            <TemplateCard template={template} mayShare={templates.data?.may_share ?? false} project={project} onUse={() => use(template)} />
          </li>
        ))}
      </Gallery>
      {wanted ? (
        <Modal variant="small" isOpen onClose={() => setWanted(null)} aria-labelledby="replace-title" aria-describedby="replace-text">
          <ModalHeader labelId="replace-title" title="Replace your draft?" />
          <ModalBody id="replace-text">What you have entered so far is replaced by the template {wanted.name}.</ModalBody>
          <ModalFooter>
            <Button onClick={() => void navigate(templatePath(wanted.name, project))}>Replace draft</Button>
            <Button variant="link" onClick={() => setWanted(null)}>
              Keep draft
            </Button>
          </ModalFooter>
        </Modal>
      ) : null}
    </section>
  );
}

interface CardProps {
  template: Template;
  /** Whether the user may save templates for the project. */
  mayShare: boolean;
  /** The project whose templates are shown; "" is the user's own. */
  project: string;
  onUse: () => void;
}

function TemplateCard({ template, mayShare, project, onUse }: CardProps) {
  const { name, origin, description, blocker, owner, changed } = template;
  const { gpus = 0, workers = 0 } = template;
  return (
    <Card isCompact isFullHeight data-template={name}>
      <CardHeader {...(template.writable ? { actions: { actions: <TemplateMenu template={template} mayShare={mayShare} project={project} />, hasNoOffset: true } } : {})}>
        <CardTitle component="h4">{name}</CardTitle>
      </CardHeader>
      <CardBody>
        <p>{description}</p>
        <p className={styles["note"]}>
          {[ORIGINS[origin] ?? origin, workers ? plural(workers, "worker") : "", gpus ? plural(gpus, "GPU") : ""].filter(Boolean).join(" · ")}
        </p>
        {origin === "shared" && owner && changed ? (
          <p className={styles["note"]}>
            Saved by {owner.split(":").at(-1)}, <Time at={changed} />
          </p>
        ) : null}
        {blocker ? (
          <HelperText>
            <HelperTextItem variant="warning">{capitalized(blocker)}</HelperTextItem>
          </HelperText>
        ) : null}
      </CardBody>
      <CardFooter>
        <Button variant="secondary" size="sm" onClick={onUse} isDisabled={!template.yaml}>
          Use template<span className="pf-v6-screen-reader"> {name}</span>
        </Button>
      </CardFooter>
    </Card>
  );
}

/** Share one's own template with the project, or delete it. */
function TemplateMenu({ template, mayShare, project }: Omit<CardProps, "onUse">) {
  const { name, origin, yaml } = template;
  const queries = useQueryClient();
  const toast = useToasts();
  const done = (title: string) => async () => {
    await queries.invalidateQueries({ queryKey: ["templates"] });
    toast({ title });
  };
  const failed = (title: string) => (error: unknown) => toast({ title, text: problemOf(error).message, variant: "danger", isSticky: true });
  const share = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/templates", { body: { name, yaml, overwrite: true, share: true, namespace: project } })),
    onSuccess: done(`Template ${name} shared with the project`),
    onError: failed("Couldn't share the template"),
  });
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/templates/{template}", { params: { path: { template: name }, query: { shared: origin === "shared", namespace: project } } })),
    onSuccess: done(`Template ${name} deleted`),
    onError: failed("Couldn't delete the template"),
  });
  return (
    <ActionMenu
      variant="kebab"
      size="sm"
      label={`Actions for template ${name}`}
      groups={[
        origin === "own"
          ? [{ label: "Share with the project", onClick: () => share.mutate(), refusal: mayShare ? "" : "You can't save templates for this project" }]
          : [],
        [{ label: "Delete template", isDanger: true, onClick: () => remove.mutate() }],
      ]}
    />
  );
}
