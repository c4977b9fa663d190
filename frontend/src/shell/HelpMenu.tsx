import { Dropdown, DropdownGroup, DropdownItem, DropdownList, MenuToggle } from "@patternfly/react-core";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import { useState } from "react";
import { useNavigate } from "react-router-dom";
import { serverUrl } from "../api/base";
import type { DialogName } from "./dialogNames";

/** Where help is: first steps, words, fields, keys, the API. */
export function HelpMenu({ onDialog }: { onDialog: (name: DialogName) => void }) {
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
        <MenuToggle ref={ref} variant="plain" aria-label="Help" icon={<QuestionCircleIcon />} isExpanded={isOpen} onClick={() => setOpen(!isOpen)} />
      )}
    >
      {isOpen ? (
        <>
          <DropdownGroup label="Learn">
            <DropdownList>
              <DropdownItem onClick={go("/learn")}>Getting started</DropdownItem>
              <DropdownItem onClick={go("/learn/job-types")}>Choose a job type</DropdownItem>
              <DropdownItem onClick={go("/learn/glossary")}>Glossary</DropdownItem>
              <DropdownItem onClick={go("/learn/fields")}>Job field reference</DropdownItem>
            </DropdownList>
          </DropdownGroup>
          <DropdownGroup label="Tools">
            <DropdownList>
              <DropdownItem onClick={() => onDialog("shortcuts")}>Keyboard shortcuts</DropdownItem>
              <DropdownItem onClick={() => onDialog("cli")}>Command line and Python</DropdownItem>
              <DropdownItem to={serverUrl("/api/v1/openapi.json")} target="_blank" rel="noreferrer" isExternalLink>
                API description
              </DropdownItem>
              <DropdownItem onClick={() => onDialog("about")}>About</DropdownItem>
            </DropdownList>
          </DropdownGroup>
        </>
      ) : null}
    </Dropdown>
  );
}
