import { MenuToggle, Select, SelectList, SelectOption, Badge } from "@patternfly/react-core";
import { useState, type ReactNode } from "react";

export interface Option {
  readonly value: string;
  readonly label: string;
  readonly description?: string | undefined;
}

interface CommonProps {
  /** The name for screen readers; the toggle shows it too where `showsLabel` is set. */
  label: string;
  options: readonly Option[];
  id?: string;
  isDisabled?: boolean;
  isFullWidth?: boolean;
  icon?: ReactNode;
  size?: "sm";
}

interface SelectMenuProps extends CommonProps {
  value: string;
  onChange: (value: string) => void;
  showsLabel?: boolean;
  "aria-describedby"?: string;
  status?: "danger";
}

/** One of a few options. */
export function SelectMenu({ label, value, options, onChange, showsLabel, id, isDisabled, isFullWidth, icon, size, status, ...rest }: SelectMenuProps) {
  const [isOpen, setOpen] = useState(false);
  const chosen = options.find((option) => option.value === value)?.label ?? value;
  return (
    <Select
      isOpen={isOpen}
      selected={value}
      onSelect={(_, next) => {
        onChange(String(next));
        setOpen(false);
      }}
      onOpenChange={setOpen}
      shouldFocusToggleOnSelect
      popperProps={{ preventOverflow: true }}
      isScrollable
      aria-label={label}
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          isExpanded={isOpen}
          isDisabled={isDisabled ?? false}
          isFullWidth={isFullWidth ?? false}
          onClick={() => setOpen(!isOpen)}
          aria-label={`${label}: ${chosen}`}
          {...(id ? { id } : {})}
          {...(icon ? { icon } : {})}
          {...(size ? { size } : {})}
          {...(status ? { status } : {})}
          {...(rest["aria-describedby"] ? { "aria-describedby": rest["aria-describedby"] } : {})}
        >
          {showsLabel ? `${label}: ${chosen}` : chosen}
        </MenuToggle>
      )}
    >
      <SelectList>
        {isOpen
          ? options.map((option) => (
              <SelectOption key={option.value} value={option.value} description={option.description}>
                {option.label}
              </SelectOption>
            ))
          : null}
      </SelectList>
    </Select>
  );
}

interface CheckboxMenuProps extends CommonProps {
  values: readonly string[];
  onToggle: (value: string) => void;
  /** Shown in the menu, below the options. */
  footer?: ReactNode;
  /** The label is the icon's name. */
  isIconOnly?: boolean;
}

/** Any of several options; the toggle counts those that are chosen. */
export function CheckboxMenu({ label, values, options, onToggle, footer, id, isDisabled, icon, size, isIconOnly = false }: CheckboxMenuProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Select
      role="menu"
      isOpen={isOpen}
      selected={[...values]}
      onSelect={(_, value) => onToggle(String(value))}
      onOpenChange={setOpen}
      popperProps={{ preventOverflow: true }}
      isScrollable
      aria-label={label}
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          isExpanded={isOpen}
          isDisabled={isDisabled ?? false}
          onClick={() => setOpen(!isOpen)}
          {...(id ? { id } : {})}
          {...(icon ? { icon } : {})}
          {...(size ? { size } : {})}
          {...(isIconOnly ? { variant: "plain" as const, "aria-label": label, title: label } : {})}
          {...(values.length && !isIconOnly ? { badge: <Badge isRead>{values.length}</Badge> } : {})}
        >
          {isIconOnly ? undefined : label}
        </MenuToggle>
      )}
    >
      <SelectList>
        {isOpen
          ? options.map((option) => (
              <SelectOption key={option.value} hasCheckbox value={option.value} isSelected={values.includes(option.value)} description={option.description}>
                {option.label}
              </SelectOption>
            ))
          : null}
      </SelectList>
      {isOpen ? footer : null}
    </Select>
  );
}
