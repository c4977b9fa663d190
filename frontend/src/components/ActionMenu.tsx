import { Divider, Dropdown, DropdownItem, DropdownList, MenuToggle, type MenuToggleProps } from "@patternfly/react-core";
import EllipsisVIcon from "@patternfly/react-icons/dist/esm/icons/ellipsis-v-icon";
import { Fragment, useState, type ReactNode } from "react";

export interface MenuAction {
  readonly label: string;
  readonly onClick?: () => void;
  /** A file of the server; saved under this name. */
  readonly href?: string;
  readonly download?: string;
  readonly isDanger?: boolean;
  /** Why it cannot be done now; "" or undefined where it can. */
  readonly refusal?: string | undefined;
  readonly description?: string;
}

interface Props {
  /** The name of the menu; the text of its button unless that is a kebab. */
  label: string;
  /** Groups of actions, a line between them. */
  groups: readonly (readonly MenuAction[])[];
  variant?: MenuToggleProps["variant"] | "kebab";
  size?: "sm";
  icon?: ReactNode;
}

/** A button that opens a menu of actions. */
export function ActionMenu({ label, groups, variant = "default", size, icon }: Props) {
  const [isOpen, setOpen] = useState(false);
  const filled = groups.filter((group) => group.length);
  const kebab = variant === "kebab";
  return (
    <Dropdown
      isOpen={isOpen}
      onSelect={() => setOpen(false)}
      onOpenChange={setOpen}
      shouldFocusToggleOnSelect
      popperProps={{ position: "end", preventOverflow: true }}
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          variant={kebab ? "plain" : variant}
          isExpanded={isOpen}
          onClick={() => setOpen(!isOpen)}
          {...(kebab ? { "aria-label": label, icon: <EllipsisVIcon /> } : {})}
          {...(icon && !kebab ? { icon } : {})}
          {...(size ? { size } : {})}
        >
          {kebab ? undefined : label}
        </MenuToggle>
      )}
    >
      <DropdownList>
        {isOpen
          ? filled.map((group, index) => (
              <Fragment key={group[0]?.label}>
                {index ? <Divider component="li" /> : null}
                {group.map((action) => (
                  <DropdownItem
                    key={action.label}
                    isDanger={action.isDanger ?? false}
                    isAriaDisabled={Boolean(action.refusal)}
                    {...(action.refusal ? { tooltipProps: { content: action.refusal } } : {})}
                    {...(action.href && !action.refusal ? { to: action.href, download: action.download ?? "" } : {})}
                    {...(action.description ? { description: action.description } : {})}
                    onClick={() => {
                      if (!action.refusal) action.onClick?.();
                    }}
                  >
                    {action.label}
                  </DropdownItem>
                ))}
              </Fragment>
            ))
          : null}
      </DropdownList>
    </Dropdown>
  );
}
