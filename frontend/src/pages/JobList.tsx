import {
  Alert,
  Button,
  Label,
  LabelGroup,
  PageSection,
  Pagination,
  Popover,
  SearchInput,
  TextInput,
  Title,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from "@patternfly/react-core";
import KeyboardIcon from "@patternfly/react-icons/dist/esm/icons/keyboard-icon";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { Link, useNavigate } from "react-router-dom";
import { api, keyOf, take, type JobRow, type Phase } from "../api/client";
import { useActions, useRefusals, WORDS } from "../components/Actions";
import { Choice } from "../components/Choice";
import { LOOKS } from "../components/PhaseLabel";
import { ProblemAlert } from "../components/ProblemAlert";
import { useRested, useTitle } from "../hooks";
import { usePlace } from "../queries";
import { plural } from "../words";
import { JobTable } from "./JobTable";
import { Nothing } from "./Nothing";
import { useFilters } from "./filters";
import { KEYS, useListKeys } from "./useListKeys";

const DAYS = [
  ["", "Any time"],
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["own", "Between two days"],
] as const;

/** All training jobs: filters live in the address, the server filters, sorts and pages. */
export function JobList() {
  useTitle("Jobs");
  const navigate = useNavigate();
  const { filters, query, set, back, reset } = useFilters();
  const [text, setText] = useState(filters.text);
  const rested = useRested(text, 250);
  useEffect(() => {
    if (rested !== filters.text) set({ text: rested });
  }, [rested]); // eslint-disable-line -- only typing changes the text
  const jobs = useQuery({
    queryKey: ["jobs", query],
    queryFn: () => take(api.GET("/api/v1/trainjobs", { params: { query } })),
    placeholderData: keepPreviousData,
  });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const { begin, question } = useActions(() => setSelected(new Set()));
  const { rows, held, show } = useHeld(jobs.data?.items ?? [], JSON.stringify(query), filters.after === "", !jobs.isPlaceholderData);
  const chosen = rows.filter((row) => selected.has(keyOf(row))).map((row) => `${row.namespace}/${row.name}`);
  const total = jobs.data?.total ?? 0;
  const nothing = jobs.data && total === 0 && !filters.active;

  useListKeys();
  const refused = useRefusals("")("clone");
  const names = useProjectNames((jobs.data?.namespaces.length ?? 0) > 1);
  const queues = [...new Set((jobs.data?.items ?? []).map((row) => row.queue).filter(Boolean))].sort();

  return (
    <>
      <PageSection>
        <div className="titled">
          <Title headingLevel="h1">Training jobs</Title>
          <span className="pages">
            <Popover
              headerContent="Keys"
              headerComponent="h2"
              aria-label="Keys of this page"
              bodyContent={
                <dl className="keys">
                  {KEYS.map(([key, what]) => (
                    <div key={key}>
                      <dt>
                        <kbd>{key}</kbd>
                      </dt>
                      <dd>{what}</dd>
                    </div>
                  ))}
                </dl>
              }
            >
              <Button variant="plain" aria-label="Keys of this page" icon={<KeyboardIcon />} />
            </Popover>
            <Button variant="secondary" component={(props) => <Link {...props} to="/learn" />}>
              Learn which type
            </Button>
            <Button isAriaDisabled={Boolean(refused)} component={(props) => <Link {...props} to="/create" />}>
              Create job
            </Button>
          </span>
        </div>
        {refused ? <Alert isInline isPlain variant="info" component="p" title={`You cannot create jobs here: ${refused}`} /> : null}
        <LabelGroup numLabels={10} aria-label="Jobs by status" className="counts">
          {(Object.keys(LOOKS) as Phase[])
            .filter((phase) => jobs.data?.counts[phase] || filters.status.includes(phase))
            .map((phase) => {
              const Icon = LOOKS[phase].icon;
              const on = filters.status.includes(phase);
              return (
                <Label
                  key={phase}
                  color={LOOKS[phase].color}
                  icon={<Icon />}
                  variant={on ? "filled" : "outline"}
                  onClick={() => set({ status: on ? filters.status.filter((one) => one !== phase) : [...filters.status, phase] })}
                >
                  {`${jobs.data?.counts[phase] ?? 0} ${phase}${on ? " (shown)" : ""}`}
                </Label>
              );
            })}
        </LabelGroup>
      </PageSection>
      <PageSection isFilled>
        {jobs.error ? <ProblemAlert error={jobs.error} /> : null}
        {nothing ? (
          <Nothing />
        ) : (
          <>
            <Toolbar clearAllFilters={reset} aria-label="Filters">
              <ToolbarContent>
                <ToolbarItem>
                  <SearchInput
                    searchInputId="search"
                    aria-label="Search by name, owner, id or reason"
                    placeholder="Name, owner, reason"
                    value={text}
                    onChange={(_, value) => setText(value)}
                    onClear={() => setText("")}
                  />
                </ToolbarItem>
                <ToolbarItem>
                  <Choice label="Created" value={filters.days} options={DAYS} onChange={(days) => set({ days, from: "", to: "" })} />
                </ToolbarItem>
                {filters.days === "own"
                  ? (["from", "to"] as const).map((word) => (
                      <ToolbarItem key={word}>
                        <TextInput
                          type="date"
                          aria-label={word === "from" ? "Created on or after" : "Created on or before"}
                          value={filters[word]}
                          onChange={(_, value) => set({ [word]: value })}
                        />
                      </ToolbarItem>
                    ))
                  : null}
                {(jobs.data?.namespaces.length ?? 0) > 1 ? (
                  <ToolbarItem>
                    <Choice
                      label="Project"
                      value={filters.namespace}
                      options={[["", "All projects"], ...(jobs.data?.namespaces ?? []).map((one) => [one, names.get(one) ?? one] as const)]}
                      onChange={(namespace) => set({ namespace })}
                    />
                  </ToolbarItem>
                ) : null}
                {(["owner", "type"] as const).map((word) => {
                  const known = jobs.data?.[`${word}s`] ?? [];
                  return known.length > 1 ? (
                    <ToolbarItem key={word}>
                      <Choice
                        label={word === "owner" ? "Owner" : "Type"}
                        value={filters[word]}
                        options={[["", word === "owner" ? "All owners" : "All types"], ...known.map((one) => [one, one] as const)]}
                        onChange={(value) => set({ [word]: value })}
                      />
                    </ToolbarItem>
                  ) : null;
                })}
                {queues.length || filters.queue ? (
                  <ToolbarItem>
                    <Choice
                      label="Queue"
                      value={filters.queue}
                      options={[["", "All queues"], ...[...new Set([...queues, filters.queue])].filter(Boolean).map((one) => [one, one] as const)]}
                      onChange={(queue) => set({ queue })}
                    />
                  </ToolbarItem>
                ) : null}
                {filters.active ? (
                  <ToolbarItem>
                    <Button
                      variant="link"
                      onClick={() => {
                        setText("");
                        reset();
                      }}
                    >
                      Clear filters
                    </Button>
                  </ToolbarItem>
                ) : null}
                <ToolbarItem align={{ default: "alignEnd" }} className="pages">
                  <span aria-live="polite">{plural(total, "job")}</span>
                  <Pagination
                    isCompact
                    itemCount={total}
                    page={filters.page}
                    perPage={filters.limit}
                    perPageOptions={[20, 50, 100].map((value) => ({ title: String(value), value }))}
                    onPerPageSelect={(_, limit) => set({ limit })}
                    onNextClick={() => set({ after: jobs.data?.after ?? "", page: filters.page + 1 })}
                    onPreviousClick={back}
                    titles={{ paginationAriaLabel: "Pages" }}
                  />
                </ToolbarItem>
              </ToolbarContent>
            </Toolbar>
            <div className="chosen" role="group" aria-label="With the selected jobs">
              <span aria-live="polite" className="under">
                {plural(chosen.length, "job")} selected
              </span>
              {chosen.length
                ? (["cancel", "suspend", "resume", "retry", "delete"] as const)
                    .filter((action) => rows.some((row) => selected.has(keyOf(row)) && row.actions.includes(action)))
                    .map((action) => (
                      <Button key={action} variant="secondary" size="sm" isDanger={action === "delete"} onClick={() => begin(action, chosen)}>
                        {action === "retry" ? "Retry" : WORDS[action]}
                      </Button>
                    ))
                : null}
              {chosen.length > 1 ? (
                <Button
                  variant="secondary"
                  size="sm"
                  onClick={() => navigate(`/compare?${chosen.map((one) => `job=${encodeURIComponent(one)}`).join("&")}`)}
                >
                  Compare ({chosen.length})
                </Button>
              ) : null}
            </div>
            <div role="status" className="news">
              {held ? (
                <Button variant="secondary" onClick={show}>
                  {plural(held, "new job")} – show
                </Button>
              ) : null}
            </div>
            <JobTable
              rows={rows}
              sort={query.sort ?? "-created"}
              onSort={(sort) => set({ sort })}
              selected={selected}
              onSelect={setSelected}
              onAction={(action, row) => begin(action, [`${row.namespace}/${row.name}`])}
            />
            {jobs.data && !rows.length ? <p className="none">No job matches these filters.</p> : null}
          </>
        )}
        {question}
      </PageSection>
    </>
  );
}

/** The projects by the names that people gave them; one machine has none. */
function useProjectNames(wanted: boolean): ReadonlyMap<string, string> {
  const place = usePlace();
  const found = useQuery({
    queryKey: ["choices", ""],
    queryFn: () => take(api.GET("/api/v1/choices", { params: { query: {} } })),
    enabled: wanted && Boolean(place.data?.cluster),
    retry: false,
    staleTime: 300_000,
  });
  return new Map((found.data?.projects ?? []).flatMap((one) => (one.text ? [[one.name, `${one.text} – ${one.name}`] as const] : [])));
}

/** Rows that came after the list was opened are announced, not pushed under the cursor. */
function useHeld(items: readonly JobRow[], key: string, firstPage: boolean, answered: boolean) {
  const [seen, setSeen] = useState<{ key: string; newest: number } | null>(null);
  const newest = useMemo(() => Math.max(0, ...items.map((row) => row.created)), [items]);
  useEffect(() => {
    // until it is answered, the rows are those of the question before: they say nothing about what is new here
    if (answered && items.length && (seen?.key !== key || seen.newest === 0)) setSeen({ key, newest });
  }, [answered, items, key, newest, seen]);
  const limit = seen?.key === key && firstPage ? seen.newest : Infinity;
  const rows = items.filter((row) => row.created <= limit);
  return { rows, held: items.length - rows.length, show: () => setSeen({ key, newest }) };
}
