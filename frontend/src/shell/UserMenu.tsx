import { Dropdown, DropdownGroup, DropdownItem, DropdownList, MenuToggle } from "@patternfly/react-core";
import UserIcon from "@patternfly/react-icons/dist/esm/icons/user-icon";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { useCapabilities } from "../api/queries";
import { zoneName } from "../lib/time";
import type { DialogName } from "./dialogNames";
import { setPreferences, usePreferences, type Preferences } from "./preferences";
import styles from "./shell.module.css";

interface Props {
  user: string;
  onDialog: (name: DialogName) => void;
}

const THEMES: readonly (readonly [Preferences["theme"], string])[] = [
  ["system", "System theme"],
  ["light", "Light theme"],
  ["dark", "Dark theme"],
];

/** `system:serviceaccount:team:anna` as `anna`: the whole name is in the menu. */
const shortName = (user: string): string => user.split(":").at(-1) ?? user;

/** Who is signed in and where, how the page looks, and signing out. */
export function UserMenu({ user, onDialog }: Props) {
  const [isOpen, setOpen] = useState(false);
  const { theme, zone } = usePreferences();
  const place = useCapabilities().data;
  const local = place?.signs_in !== "login";
  const signOut = (): void => {
    if (place?.sign_out) window.location.assign(place.sign_out);
    else void unwrap(api.DELETE("/api/v1/session")).finally(() => window.location.reload());
  };
  return (
    <Dropdown
      isOpen={isOpen}
      onSelect={() => setOpen(false)}
      onOpenChange={setOpen}
      shouldFocusToggleOnSelect
      popperProps={{ position: "end" }}
      toggle={(ref) => (
        <MenuToggle ref={ref} variant="plainText" aria-label={`User menu: ${user}`} icon={<UserIcon />} isExpanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <span className={styles["userName"]}>{shortName(user)}</span>
        </MenuToggle>
      )}
    >
      {isOpen ? (
        <>
          <DropdownGroup label={`${user} · ${place?.cluster ? "Cluster" : "This machine"}`}>
            <DropdownList>
              {THEMES.map(([value, label]) => (
                <DropdownItem key={value} isSelected={theme === value} onClick={() => setPreferences({ theme: value })}>
                  {label}
                </DropdownItem>
              ))}
            </DropdownList>
          </DropdownGroup>
          <DropdownGroup label="Time zone">
            <DropdownList>
              <DropdownItem isSelected={zone === "local"} onClick={() => setPreferences({ zone: "local" })}>
                {`Local time (${zoneName("local")})`}
              </DropdownItem>
              <DropdownItem isSelected={zone === "utc"} onClick={() => setPreferences({ zone: "utc" })}>
                UTC
              </DropdownItem>
            </DropdownList>
          </DropdownGroup>
          <DropdownGroup label="Session">
            <DropdownList>
              {local ? <DropdownItem onClick={() => onDialog("link")}>Sign in another browser</DropdownItem> : null}
              <DropdownItem onClick={signOut}>Sign out</DropdownItem>
            </DropdownList>
          </DropdownGroup>
        </>
      ) : null}
    </Dropdown>
  );
}
