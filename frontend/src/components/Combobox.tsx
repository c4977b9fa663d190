import { MenuToggle, Select, SelectList, SelectOption, TextInputGroup, TextInputGroupMain } from "@patternfly/react-core";
import { useState, type KeyboardEvent } from "react";
import type { Option } from "./SelectMenu";

interface Props {
  id: string;
  label: string;
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
  placeholder?: string;
  isInvalid?: boolean;
  describedBy?: string;
}

const MOST_SHOWN = 50;

/** Text that may be anything, with what is known to choose from while it is typed. */
export function Combobox({ id, label, value, options, onChange, placeholder = "", isInvalid = false, describedBy }: Props) {
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const [filter, setFilter] = useState("");
  const shown = options.filter((option) => `${option.value} ${option.label}`.toLowerCase().includes(filter.toLowerCase())).slice(0, MOST_SHOWN);
  const choose = (next: string): void => {
    onChange(next);
    setOpen(false);
    setActive(-1);
    setFilter("");
  };
  const open = (): void => {
    setOpen(true);
    setFilter("");
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) open();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((before) => (shown.length ? (before + step + shown.length) % shown.length : -1));
    } else if (event.key === "Enter" && isOpen && active >= 0) {
      event.preventDefault();
      const option = shown[active];
      if (option) choose(option.value);
    } else if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      setOpen(false);
    } else if (event.key === "Tab") setOpen(false);
  };
  const optionId = (index: number): string => `${id}-option-${index}`;
  return (
    <Select
      isOpen={isOpen && shown.length > 0}
      selected={value}
      onSelect={(_, next) => choose(String(next))}
      onOpenChange={setOpen}
      variant="typeahead"
      isScrollable
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          variant="typeahead"
          isFullWidth
          isExpanded={isOpen && shown.length > 0}
          onClick={() => (isOpen ? setOpen(false) : open())}
          aria-label={`Options for ${label}`}
          {...(isInvalid ? { status: "danger" as const } : {})}
        >
          <TextInputGroup isPlain>
            <TextInputGroupMain
              inputId={id}
              value={value}
              placeholder={placeholder}
              onClick={open}
              onChange={(_, text) => {
                onChange(text);
                setFilter(text);
                setActive(-1);
                setOpen(true);
              }}
              onKeyDown={onKeyDown}
              autoComplete="off"
              role="combobox"
              isExpanded={isOpen && shown.length > 0}
              aria-controls={`${id}-options`}
              aria-label={label}
              {...(active >= 0 ? { "aria-activedescendant": optionId(active) } : {})}
              inputProps={{ spellCheck: false, "aria-invalid": isInvalid, ...(describedBy ? { "aria-describedby": describedBy } : {}) }}
            />
          </TextInputGroup>
        </MenuToggle>
      )}
    >
      <SelectList id={`${id}-options`}>
        {isOpen
          ? shown.map((option, index) => (
              <SelectOption key={option.value} id={optionId(index)} value={option.value} isFocused={index === active} description={option.description}>
                {option.label}
              </SelectOption>
            ))
          : null}
      </SelectList>
    </Select>
  );
}
