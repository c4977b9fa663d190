import {
  Button,
  Divider,
  Dropdown,
  DropdownItem,
  DropdownList,
  MenuToggle,
  SearchInput,
  Toolbar,
  ToolbarContent,
  ToolbarFilter,
  ToolbarGroup,
  ToolbarItem,
  ToolbarToggleGroup,
  Tooltip,
} from "@patternfly/react-core";
import EllipsisVIcon from "@patternfly/react-icons/dist/esm/icons/ellipsis-v-icon";
import FilterIcon from "@patternfly/react-icons/dist/esm/icons/filter-icon";
import ListIcon from "@patternfly/react-icons/dist/esm/icons/list-icon";
import { useState } from "react";
import type { JobDetail } from "../api/client";
import shared from "../components/components.module.css";
import { CheckboxMenu, SelectMenu } from "../components/SelectMenu";
import { plural, spans } from "../lib/format";
import { useTypedText } from "../lib/hooks";
import { clockSeconds } from "../lib/time";
import { usePreferences } from "../shell/preferences";
import type { LogFilters } from "./logQuery";

export interface LogView {
  readonly follow: boolean;
  readonly wrap: boolean;
  readonly times: boolean;
  readonly fullScreen: boolean;
}

export type ParamChange = Readonly<Record<string, string | readonly string[]>>;

interface Props {
  detail: JobDetail;
  filters: LogFilters;
  view: LogView;
  hits: { readonly index: number; readonly count: number };
  download: string;
  onChange: (change: ParamChange) => void;
  onView: (change: Partial<LogView>) => void;
  onHit: (step: 1 | -1) => void;
  onClear: () => void;
}

const LEVELS = [
  { value: "", label: "All levels" },
  { value: "info", label: "Info and above" },
  { value: "warning", label: "Warnings and errors" },
  { value: "error", label: "Errors" },
] as const;

const ROLES = [
  { value: "launcher", label: "Launcher" },
  { value: "worker", label: "Workers (not the program)" },
  { value: "rank", label: "All ranks" },
] as const;

const MINUTE = 60;
const MOST_LISTED_RANKS = 128;

/** Which lines are shown, finding among them, and how they are shown. */
export function LogToolbar({ detail, filters, view, hits, download, onChange, onView, onHit, onClear }: Props) {
  return (
    <Toolbar clearAllFilters={onClear} clearFiltersButtonText="Clear all filters" numberOfFiltersText={(count) => `${plural(count, "filter")} applied`} aria-label="Log filters" collapseListedFiltersBreakpoint="lg" className={shared["filters"] ?? ""}>
      <ToolbarContent>
        <ToolbarItem>
          <Find filters={filters} hits={hits} onChange={onChange} onHit={onHit} />
        </ToolbarItem>
        <ToolbarToggleGroup toggleIcon={<FilterIcon />} breakpoint="lg" aria-label="Filters">
          <ToolbarGroup variant="filter-group">
            <Sources detail={detail} filters={filters} onChange={onChange} />
            <ToolbarFilter
              categoryName="Level"
              labels={filters.level ? [LEVELS.find(({ value }) => value === filters.level)?.label ?? filters.level] : []}
              deleteLabel={() => onChange({ level: "" })}
            >
              <SelectMenu label="Level" value={filters.level} options={LEVELS} onChange={(level) => onChange({ level })} />
            </ToolbarFilter>
            <Times detail={detail} filters={filters} onChange={onChange} />
          </ToolbarGroup>
        </ToolbarToggleGroup>
        <ToolbarGroup variant="action-group-plain" align={{ default: "alignEnd" }}>
          <ToolbarItem>
            <ViewMenu view={view} isFolded={filters.fold} download={download} name={detail.row.name} onChange={onChange} onView={onView} />
          </ToolbarItem>
        </ToolbarGroup>
      </ToolbarContent>
    </Toolbar>
  );
}

type FindProps = Pick<Props, "filters" | "hits" | "onChange" | "onHit">;

/** Finds in the lines; the button beside it hides all other lines. */
function Find({ filters, hits, onChange, onHit }: FindProps) {
  const [text, setText] = useTypedText(filters.find, (find) => onChange({ find, regex: "", ...(find ? {} : { only: "" }) }));
  const count = filters.find ? `${hits.index + 1} / ${hits.count}` : "";
  return (
    <ToolbarFilter
      categoryName="Only lines with"
      labels={filters.only && filters.find ? [filters.find] : []}
      deleteLabel={() => onChange({ only: "", regex: "" })}
    >
      <div
        style={{ display: "flex", gap: "var(--pf-t--global--spacer--xs)" }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && event.target instanceof HTMLInputElement) onHit(event.shiftKey ? -1 : 1);
        }}
      >
        <SearchInput
          searchInputId="log-find"
          aria-label="Find in logs; a regular expression between slashes"
          placeholder="Find in logs"
          value={text}
          onChange={(_, value) => setText(value)}
          onClear={() => onChange({ find: "", only: "", regex: "" })}
          {...(count ? { resultsCount: count } : {})}
          onNextClick={() => onHit(1)}
          onPreviousClick={() => onHit(-1)}
        />
        <Tooltip content="Show only matching lines, searched for in the whole log">
          <Button
            variant="control"
            aria-label="Show only matching lines"
            aria-pressed={filters.only}
            isClicked={filters.only}
            icon={<ListIcon />}
            isDisabled={!filters.find}
            onClick={() => onChange({ only: filters.only ? "" : "true", find: filters.find, regex: "" })}
          />
        </Tooltip>
      </div>
    </ToolbarFilter>
  );
}

type FilterProps = Pick<Props, "detail" | "filters" | "onChange">;

/** Whose lines: the launcher's, the workers' own, or those of chosen ranks. */
function Sources({ detail, filters, onChange }: FilterProps) {
  const ranks = detail.state.ranks ?? [];
  const world = Math.max(detail.row.ranks, ranks.length);
  const workerOf = new Map(ranks.map((rank) => [rank.rank, rank.worker]));
  const listed = Array.from({ length: Math.min(world, MOST_LISTED_RANKS) }, (_, rank) => ({
    value: `rank:${rank}`,
    label: `Rank ${rank}`,
    description: workerOf.has(rank) ? `Worker ${workerOf.get(rank)}` : undefined,
  }));
  const values = [...filters.roles, ...filters.ranks.map((rank) => `rank:${rank}`)];
  const toggle = (value: string): void => {
    const rank = /^rank:(\d+)$/.exec(value)?.[1];
    if (rank === undefined) {
      const roles = filters.roles.includes(value) ? filters.roles.filter((role) => role !== value) : [...filters.roles, value];
      onChange({ role: roles, ranks: "" });
      return;
    }
    const number = Number(rank);
    const chosen = filters.ranks.includes(number) ? filters.ranks.filter((one) => one !== number) : [...filters.ranks, number];
    onChange({ ranks: spans(chosen), role: [] });
  };
  const labels = [
    ...filters.roles.map((role) => ROLES.find(({ value }) => value === role)?.label ?? role),
    ...(filters.ranks.length ? [`Rank ${spans(filters.ranks)}`] : []),
    ...(filters.workers.length ? [`Worker ${spans(filters.workers)}`] : []),
  ];
  return (
    <ToolbarFilter
      categoryName="Source"
      labels={labels}
      deleteLabel={(_, label) => {
        const role = ROLES.find((one) => one.label === label)?.value;
        if (role) onChange({ role: filters.roles.filter((one) => one !== role) });
        else onChange(String(label).startsWith("Worker ") ? { workers: "" } : { ranks: "" });
      }}
      deleteLabelGroup={() => onChange({ role: [], ranks: "", workers: "" })}
    >
      <CheckboxMenu label="Sources" values={values} options={[...ROLES, ...listed]} onToggle={toggle} />
    </ToolbarFilter>
  );
}

/** Which part of the log by time. */
function Times({ detail, filters, onChange }: FilterProps) {
  const { zone } = usePreferences();
  const { since, until } = filters;
  const custom = Boolean(since || until);
  const begin = detail.state.running ?? detail.row.started ?? detail.row.created;
  const now = (): number => Math.floor(Date.now() / 1000);
  const choose = (value: string): void => {
    const ranges: Record<string, ParamChange> = {
      "": { since: "", until: "" },
      "5": { since: String(now() - 5 * MINUTE), until: "" },
      "60": { since: String(now() - 60 * MINUTE), until: "" },
      first: { since: "", until: String(Math.ceil(begin + 5 * MINUTE)) },
    };
    const range = ranges[value];
    if (range) onChange(range);
  };
  const moment = (seconds: string): string => (seconds ? clockSeconds(Number(seconds) * 1000, zone) : "");
  const options = [
    { value: "", label: "Any time" },
    { value: "5", label: "Last 5 minutes" },
    { value: "60", label: "Last hour" },
    { value: "first", label: "First 5 minutes" },
    ...(custom ? [{ value: "custom", label: "Custom range" }] : []),
  ];
  return (
    <ToolbarFilter categoryName="Time" labels={custom ? [`${moment(since) || "begin"}–${moment(until) || "now"}`] : []} deleteLabel={() => onChange({ since: "", until: "" })}>
      <SelectMenu label="Time" value={custom ? "custom" : ""} options={options} onChange={choose} />
    </ToolbarFilter>
  );
}

interface ViewMenuProps extends Pick<Props, "view" | "download" | "onChange" | "onView"> {
  isFolded: boolean;
  name: string;
}

/** How lines are shown, and all of them as a file. */
function ViewMenu({ view, isFolded, download, name, onChange, onView }: ViewMenuProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={isOpen}
      onSelect={() => setOpen(false)}
      onOpenChange={setOpen}
      shouldFocusToggleOnSelect
      popperProps={{ position: "end" }}
      toggle={(ref) => (
        <MenuToggle ref={ref} variant="plain" aria-label="View options" icon={<EllipsisVIcon />} isExpanded={isOpen} onClick={() => setOpen(!isOpen)} />
      )}
    >
      {isOpen ? (
        <DropdownList>
          <DropdownItem isSelected={view.wrap} onClick={() => onChange({ wrap: view.wrap ? "" : "true" })}>
            Wrap lines
          </DropdownItem>
          <DropdownItem isSelected={isFolded} onClick={() => onChange({ fold: isFolded ? "" : "true" })} description="Identical lines of several ranks">
            Collapse duplicate lines
          </DropdownItem>
          <DropdownItem isSelected={view.times} onClick={() => onView({ times: !view.times })}>
            Show times
          </DropdownItem>
          <DropdownItem isSelected={view.fullScreen} onClick={() => onView({ fullScreen: !view.fullScreen })}>
            Full window
          </DropdownItem>
          <Divider component="li" />
          <DropdownItem to={download} download={`${name}.log`}>
            Download these lines
          </DropdownItem>
        </DropdownList>
      ) : null}
    </Dropdown>
  );
}
