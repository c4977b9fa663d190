import {
  Button,
  DatePicker,
  Pagination,
  SearchInput,
  Toolbar,
  ToolbarContent,
  ToolbarFilter,
  ToolbarGroup,
  ToolbarItem,
  ToolbarToggleGroup,
  type PaginationProps,
} from "@patternfly/react-core";
import ColumnsIcon from "@patternfly/react-icons/dist/esm/icons/columns-icon";
import FilterIcon from "@patternfly/react-icons/dist/esm/icons/filter-icon";
import type { JobList, JobRow, Phase } from "../api/client";
import { ActionMenu } from "../components/ActionMenu";
import { CheckboxMenu, SelectMenu } from "../components/SelectMenu";
import { plural } from "../lib/format";
import { useTypedText } from "../lib/hooks";
import { PHASES } from "../lib/phases";
import { setPreferences, usePreferences } from "../shell/preferences";
import { COLUMNS, type ColumnKey } from "./columns";
import { PAGE_SIZES, toggled, type FilterChange, type Filters } from "./filters";
import shared from "../components/components.module.css";
import styles from "./jobs.module.css";

const CREATED = [
  { value: "", label: "Any time" },
  { value: "1", label: "Last 24 hours" },
  { value: "7", label: "Last 7 days" },
  { value: "30", label: "Last 30 days" },
  { value: "custom", label: "Custom range" },
] as const;

interface Props {
  filters: Filters;
  list: JobList | undefined;
  rows: readonly JobRow[];
  columns: ReadonlySet<ColumnKey>;
  isPhone: boolean;
  onChange: (change: FilterChange) => void;
  onClear: () => void;
  onPage: { next: () => void; previous: () => void };
  onCopyLink: () => void;
}

/** Search, filters with a chip for each value, columns and pages. */
export function JobToolbar({ filters, list, rows, columns, isPhone, onChange, onClear, onPage, onCopyLink }: Props) {
  const [text, setText] = useTypedText(filters.text, (next) => onChange({ text: next }), 250);
  return (
    <Toolbar clearAllFilters={onClear} clearFiltersButtonText="Clear all filters" numberOfFiltersText={(count) => `${plural(count, "filter")} applied`} aria-label="Filters" collapseListedFiltersBreakpoint="lg" className={shared["filters"] ?? ""}>
      <ToolbarContent>
        <ToolbarItem>
          <ToolbarFilter
            categoryName="Search"
            labels={filters.text ? [filters.text] : []}
            deleteLabel={() => onChange({ text: "" })}
            showToolbarItem
          >
            <SearchInput
              searchInputId="job-search"
              aria-label="Search jobs by name, owner, ID or reason"
              placeholder="Search jobs"
              value={text}
              onChange={(_, value) => setText(value)}
              onClear={() => onChange({ text: "" })}
            />
          </ToolbarFilter>
        </ToolbarItem>
        <ToolbarToggleGroup toggleIcon={<FilterIcon />} breakpoint="lg" aria-label="Filters">
          <ToolbarGroup variant="filter-group">
            <FilterMenus filters={filters} list={list} rows={rows} onChange={onChange} />
          </ToolbarGroup>
        </ToolbarToggleGroup>
        {isPhone ? null : (
          <ToolbarItem>
            <ColumnMenu columns={columns} />
          </ToolbarItem>
        )}
        <ToolbarItem>
          <ActionMenu variant="kebab" label="More" groups={[[{ label: "Copy link to this view", onClick: onCopyLink }]]} />
        </ToolbarItem>
        <ToolbarItem align={{ default: "alignEnd" }} alignSelf="center" variant="pagination">
          {list && list.total <= rows.length ? plural(list.total, "job") : <Pages filters={filters} list={list} onChange={onChange} onPage={onPage} isCompact />}
        </ToolbarItem>
      </ToolbarContent>
    </Toolbar>
  );
}

type MenuProps = Pick<Props, "filters" | "list" | "rows" | "onChange">;

const LISTS = [
  { key: "type", label: "Type", values: "types" },
  { key: "owner", label: "Owner", values: "owners" },
] as const;

function FilterMenus({ filters, list, rows, onChange }: MenuProps) {
  const phases = PHASES.filter((phase) => list?.counts[phase] || filters.status.includes(phase));
  const queues = [...new Set([...rows.map((row) => row.queue), filters.queue])].filter(Boolean).sort();
  const created = CREATED.find(({ value }) => value === filters.days)?.label ?? "";
  const range = [filters.from && `from ${filters.from}`, filters.to && `to ${filters.to}`].filter(Boolean).join(" ");
  const clearDays = (): void => onChange({ days: "", from: "", to: "" });
  return (
    <>
      <ToolbarFilter
        categoryName="Status"
        labels={[...filters.status]}
        deleteLabel={(_, label) => onChange({ status: toggled(filters.status, String(label) as Phase) })}
        deleteLabelGroup={() => onChange({ status: [] })}
      >
        <CheckboxMenu
          label="Status"
          values={filters.status}
          options={phases.map((phase) => ({ value: phase, label: `${phase} (${list?.counts[phase] ?? 0})` }))}
          onToggle={(phase) => onChange({ status: toggled(filters.status, phase as Phase) })}
        />
      </ToolbarFilter>
      {LISTS.map(({ key, label, values }) => {
        const known = [...new Set([...(list?.[values] ?? []), ...filters[key]])];
        return known.length > 1 || filters[key].length ? (
          <ToolbarFilter
            key={key}
            categoryName={label}
            labels={[...filters[key]]}
            deleteLabel={(_, value) => onChange({ [key]: toggled(filters[key], String(value)) })}
            deleteLabelGroup={() => onChange({ [key]: [] })}
          >
            <CheckboxMenu
              label={label}
              values={filters[key]}
              options={known.map((value) => ({ value, label: value }))}
              onToggle={(value) => onChange({ [key]: toggled(filters[key], value) })}
            />
          </ToolbarFilter>
        ) : null;
      })}
      {queues.length ? (
        <ToolbarFilter categoryName="Queue" labels={filters.queue ? [filters.queue] : []} deleteLabel={() => onChange({ queue: "" })}>
          <SelectMenu
            label="Queue"
            showsLabel
            value={filters.queue}
            options={[{ value: "", label: "All" }, ...queues.map((queue) => ({ value: queue, label: queue }))]}
            onChange={(queue) => onChange({ queue })}
          />
        </ToolbarFilter>
      ) : null}
      <ToolbarFilter categoryName="Created" labels={filters.days ? [filters.days === "custom" ? range || "Custom range" : created] : []} deleteLabel={clearDays}>
        <SelectMenu
          label="Created"
          showsLabel
          value={filters.days}
          options={CREATED}
          onChange={(days) => onChange({ days, from: "", to: "" })}
        />
      </ToolbarFilter>
      {filters.days === "custom" ? (
        <ToolbarItem>
          <div className={styles["dates"]}>
            <DatePicker aria-label="Created on or after" placeholder="From" value={filters.from} onChange={(_, from) => onChange({ from })} />
            <DatePicker aria-label="Created on or before" placeholder="To" value={filters.to} onChange={(_, to) => onChange({ to })} />
          </div>
        </ToolbarItem>
      ) : null}
    </>
  );
}

function ColumnMenu({ columns }: { columns: ReadonlySet<ColumnKey> }) {
  const { columns: chosen } = usePreferences();
  return (
    <CheckboxMenu
      label="Columns"
      icon={<ColumnsIcon />}
      isIconOnly
      values={[...columns]}
      options={COLUMNS.map(({ key, label }) => ({ value: key, label }))}
      onToggle={(key) => setPreferences({ columns: { ...chosen, [key]: !columns.has(key as ColumnKey) } })}
      footer={
        <Button variant="link" onClick={() => setPreferences({ columns: {} })}>
          Reset to default
        </Button>
      }
    />
  );
}

type PagesProps = Pick<Props, "filters" | "list" | "onChange" | "onPage"> & Pick<PaginationProps, "isCompact" | "variant">;

export function Pages({ filters, list, onChange, onPage, ...props }: PagesProps) {
  return (
    <Pagination
      {...props}
      itemCount={list?.total ?? 0}
      page={filters.page}
      perPage={filters.limit}
      perPageOptions={PAGE_SIZES.map((value) => ({ title: String(value), value }))}
      onPerPageSelect={(_, limit) => onChange({ limit })}
      onNextClick={onPage.next}
      onPreviousClick={onPage.previous}
      titles={{ paginationAriaLabel: props.variant === "bottom" ? "Pages, bottom" : "Pages" }}
    />
  );
}
