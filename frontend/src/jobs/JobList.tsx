import {
  Alert,
  AlertActionLink,
  Button,
  Dropdown,
  DropdownItem,
  DropdownList,
  Flex,
  FlexItem,
  MenuToggle,
  MenuToggleAction,
  PageSection,
  Skeleton,
  Title,
  ToggleGroup,
  ToggleGroupItem,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from "@patternfly/react-core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useLocation, useNavigate } from "react-router-dom";
import { api, rowKey, unwrap, type Action, type JobRow, type Phase } from "../api/client";
import { ActionMenu } from "../components/ActionMenu";
import { ProblemAlert } from "../components/ProblemAlert";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { plural } from "../lib/format";
import { usePageTitle, usePhone, useQueryParams } from "../lib/hooks";
import { comparePath } from "../lib/links";
import { PHASES } from "../lib/phases";
import { usePreferences } from "../shell/preferences";
import { useProject } from "../shell/project";
import { ProjectSelectOnScreen } from "../shell/ProjectSelect";
import { useToasts } from "../shell/toasts";
import { ACTION_LABELS, useJobActions, useRefusals, type BulkAction } from "./actions";
import { shownColumns } from "./columns";
import { NoJobs, NoResults } from "./EmptyJobs";
import { changeFilters, clearFilters, isFiltered, listQuery, readFilters, toggled, type FilterChange } from "./filters";
import { JobCards } from "./JobCards";
import { JobTable } from "./JobTable";
import { JobToolbar, Pages } from "./JobToolbar";
import styles from "./jobs.module.css";
import { useListShortcuts } from "./useListShortcuts";
import { useProgress } from "./useProgress";

const POLL_MS = 5000; // where the stream of changes is held back by a proxy

/** All training jobs with status, reason and progress; filters are in the URL. */
export function JobList() {
  usePageTitle("Jobs");
  const navigate = useNavigate();
  const location = useLocation();
  const toast = useToasts();
  const isPhone = usePhone();
  const { zone, columns: chosenColumns } = usePreferences();
  const [params, editParams] = useQueryParams();
  const [project] = useProject();
  const filters = useMemo(() => readFilters(params), [params]);
  const query = useMemo(() => listQuery(filters, project, zone, Date.now() / 1000), [filters, project, zone]);
  const filtered = isFiltered(params);

  const jobs = useQuery({
    queryKey: ["jobs", query],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
  const list = jobs.data;
  const { rows, held, show } = useHeldRows(list?.items, JSON.stringify(query), filters.after === "", !jobs.isPlaceholderData);
  const columns = useMemo(() => shownColumns(rows, project, chosenColumns), [rows, project, chosenColumns]);
  const progress = useProgress(rows, columns.has("progress") || isPhone);

  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const { begin, dialog } = useJobActions(() => setSelected(new Set()));
  const selectedRows = rows.filter((row) => selected.has(rowKey(row)));
  const refusal = useRefusals(project);
  useListShortcuts();

  const change = (next: FilterChange): void => editParams((query) => changeFilters(query, next), "after" in next ? { state: { paged: true } } : { replace: true });
  const clear = (): void => editParams(clearFilters);
  const onPage = {
    next: () => change({ after: list?.after ?? "", page: filters.page + 1 }),
    /** The page before; who came by a link to a later page goes to the first. */
    previous: () => ((location.state as { paged?: boolean } | null)?.paged ? void navigate(-1) : change({ limit: filters.limit })),
  };
  const copyLink = (): void => void navigator.clipboard.writeText(window.location.href).then(() => toast({ title: "Link copied" }));
  const empty = list && list.total === 0 && !filtered;
  const shared = { rows, progress, refusal, onAction: begin };
  return (
    <>
      <PageSection>
        <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
          <FlexItem>
            <Title headingLevel="h1">Training jobs</Title>
          </FlexItem>
          <FlexItem>
            <CreateButton refusal={refusal("clone")} />
          </FlexItem>
        </Flex>
        <ProjectSelectOnScreen />
        {empty ? null : <PhaseCounts counts={list?.counts} shown={filters.status} onChange={(status) => change({ status })} />}
      </PageSection>
      <PageSection isFilled>
        {refusal("clone") ? <Alert isInline isPlain variant="info" component="p" title={`You can't create jobs here: ${refusal("clone")}`} /> : null}
        {jobs.error ? <ProblemAlert error={jobs.error} /> : null}
        {empty ? (
          <NoJobs />
        ) : (
          <>
            {selectedRows.length ? (
              <BulkBar rows={selectedRows} refusal={refusal} onAction={begin} onClear={() => setSelected(new Set())} />
            ) : (
              <JobToolbar {...{ filters, list, rows, columns, isPhone, onPage }} onChange={change} onClear={clear} onCopyLink={copyLink} />
            )}
            <div role="status">
              {held ? (
                <Alert isInline variant="info" component="p" title={plural(held, "new job")} actionLinks={<AlertActionLink onClick={show}>{`Show ${plural(held, "new job")}`}</AlertActionLink>} />
              ) : null}
            </div>
            {jobs.isPending ? <LoadingRows /> : null}
            {list && !rows.length ? <NoResults onClear={clear} /> : null}
            {rows.length && isPhone ? <JobCards {...shared} /> : null}
            {rows.length && !isPhone ? (
              <JobTable {...shared} columns={columns} sort={filters.sort} onSort={(sort) => change({ sort })} selected={selected} onSelect={setSelected} />
            ) : null}
            {list && list.total > rows.length ? <Pages variant="bottom" filters={filters} list={list} onChange={change} onPage={onPage} /> : null}
          </>
        )}
        {dialog}
      </PageSection>
    </>
  );
}

/** Creates a job from nothing; its menu begins with a template, a file or the guide. */
function CreateButton({ refusal }: { refusal: string }) {
  const [isOpen, setOpen] = useState(false);
  const navigate = useNavigate();
  const go = (path: string) => () => void navigate(path);
  return (
    <Dropdown
      isOpen={isOpen}
      onSelect={() => setOpen(false)}
      onOpenChange={setOpen}
      shouldFocusToggleOnSelect
      popperProps={{ position: "end" }}
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          variant="primary"
          aria-label="More ways to create a job"
          isExpanded={isOpen}
          isDisabled={Boolean(refusal)}
          onClick={() => setOpen(!isOpen)}
          splitButtonItems={[
            <MenuToggleAction key="create" isDisabled={Boolean(refusal)} onClick={go("/create")}>
              Create job
            </MenuToggleAction>,
          ]}
        />
      )}
    >
      {isOpen ? (
        <DropdownList>
          <DropdownItem onClick={go("/create?step=start&show=templates")}>From a template</DropdownItem>
          <DropdownItem onClick={go("/create?view=yaml")} description="A job file, a Kubernetes manifest, or a Slurm or PBS script">
            From YAML or a script
          </DropdownItem>
          <DropdownItem onClick={go("/create?step=start&help=true")}>Help me choose</DropdownItem>
        </DropdownList>
      ) : null}
    </Dropdown>
  );
}

interface PhaseCountsProps {
  counts: Record<string, number> | undefined;
  shown: readonly Phase[];
  onChange: (shown: readonly Phase[]) => void;
}

const ALWAYS_COUNTED: readonly Phase[] = ["Running", "Queued", "Failed", "Succeeded"];

/** How many jobs are in each phase; a click shows only those. */
function PhaseCounts({ counts, shown, onChange }: PhaseCountsProps) {
  const phases = PHASES.filter((phase) => ALWAYS_COUNTED.includes(phase) || counts?.[phase] || shown.includes(phase));
  return (
    <div className={styles["phases"]}>
      <ToggleGroup aria-label="Jobs by status">
        {phases.map((phase) => {
          const Icon = PHASE_LOOKS[phase].icon;
          return (
            <ToggleGroupItem
              key={phase}
              buttonId={`phase-${phase}`}
              icon={<Icon />}
              text={`${phase} ${counts?.[phase] ?? 0}`}
              isSelected={shown.includes(phase)}
              onChange={() => onChange(toggled(shown, phase))}
            />
          );
        })}
      </ToggleGroup>
    </div>
  );
}

interface BulkBarProps {
  rows: readonly JobRow[];
  refusal: (action: Action) => string;
  onAction: (action: BulkAction, rows: readonly JobRow[]) => void;
  onClear: () => void;
}

const BULK: readonly BulkAction[] = ["retry", "resume", "suspend", "delete"];
const MOST_COMPARED = 10;

/** What can be done with the selected jobs; it takes the place of the filters. */
function BulkBar({ rows, refusal, onAction, onClear }: BulkBarProps) {
  const navigate = useNavigate();
  const able = (action: BulkAction): readonly JobRow[] => rows.filter((row) => row.actions.includes(action));
  const stoppable = able("cancel");
  const item = (action: BulkAction) => ({
    label: `${ACTION_LABELS[action]} (${able(action).length})`,
    isDanger: action === "delete",
    refusal: refusal(action),
    onClick: () => onAction(action, able(action)),
  });
  const compared = rows.map((row) => `${row.namespace}/${row.name}`);
  return (
    <Toolbar aria-label="Bulk actions">
      <ToolbarContent>
        <ToolbarItem alignSelf="center">
          <span aria-live="polite">{plural(rows.length, "job")} selected</span>
        </ToolbarItem>
        <ToolbarItem>
          <Button
            variant="secondary"
            isAriaDisabled={rows.length < 2 || rows.length > MOST_COMPARED}
            {...(rows.length < 2 ? { title: "Select at least two jobs" } : rows.length > MOST_COMPARED ? { title: `Select at most ${MOST_COMPARED} jobs` } : {})}
            onClick={() => void navigate(comparePath(compared))}
          >
            Compare
          </Button>
        </ToolbarItem>
        {stoppable.length ? (
          <ToolbarItem>
            <Button variant="secondary" isAriaDisabled={Boolean(refusal("cancel"))} onClick={() => onAction("cancel", stoppable)}>
              Stop ({stoppable.length})
            </Button>
          </ToolbarItem>
        ) : null}
        <ToolbarItem>
          <ActionMenu variant="kebab" label="More bulk actions" groups={[BULK.filter((action) => able(action).length && action !== "delete").map(item), able("delete").length ? [item("delete")] : []]} />
        </ToolbarItem>
        <ToolbarItem>
          <Button variant="link" onClick={onClear}>
            Clear selection
          </Button>
        </ToolbarItem>
      </ToolbarContent>
    </Toolbar>
  );
}

const LoadingRows = () => (
  <div role="status" aria-label="Loading jobs">
    {Array.from({ length: 8 }, (_, index) => (
      <Skeleton key={index} height="2rem" style={{ marginBlock: "0.5rem" }} screenreaderText={index ? "" : "Loading jobs"} />
    ))}
  </div>
);

const NO_ROWS: readonly JobRow[] = [];

/** Rows that came after the list was opened are announced, not pushed under the cursor. */
function useHeldRows(items: readonly JobRow[] = NO_ROWS, key: string, firstPage: boolean, isAnswered: boolean) {
  const [seen, setSeen] = useState<{ key: string; newest: number } | null>(null);
  const newest = useMemo(() => Math.max(0, ...items.map((row) => row.created)), [items]);
  useEffect(() => {
    // until it is answered, the rows are those of the question before: they say nothing about what is new here
    if (isAnswered && items.length && (seen?.key !== key || (seen.newest === 0 && newest > 0))) setSeen({ key, newest });
  }, [isAnswered, items, key, newest, seen]);
  const limit = seen?.key === key && firstPage ? seen.newest : Infinity;
  const rows = useMemo(() => (limit === Infinity ? items : items.filter((row) => row.created <= limit)), [items, limit]);
  return { rows, held: items.length - rows.length, show: () => setSeen({ key, newest }) };
}
