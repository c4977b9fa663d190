import {
  Button,
  Checkbox,
  ClipboardCopy,
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
} from "@patternfly/react-core";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, unwrap } from "../api/client";
import { useCapabilities } from "../api/queries";
import { Details } from "../components/Details";
import { ProblemAlert } from "../components/ProblemAlert";
import { LIST_SHORTCUTS, LOG_SHORTCUTS } from "../lib/shortcuts";
import type { DialogName } from "./dialogNames";
import { setPreferences, usePreferences } from "./preferences";

interface Props {
  name: DialogName;
  onClose: () => void;
}

const TITLES: Record<DialogName, string> = {
  shortcuts: "Keyboard shortcuts",
  cli: "Command line and Python",
  link: "Sign in another browser",
  about: "About mpijob",
};

const CONTENTS: Record<DialogName, () => ReactNode> = {
  shortcuts: () => <Shortcuts />,
  cli: () => <CommandLine />,
  link: () => <SignInLink />,
  about: () => <About />,
};

/** The dialogs of the page as a whole. */
export default function Dialogs({ name, onClose }: Props) {
  return (
    <Modal isOpen variant="small" onClose={onClose} aria-labelledby="dialog-title">
      <ModalHeader title={TITLES[name]} labelId="dialog-title" />
      <ModalBody tabIndex={0} role="region" aria-label={TITLES[name]}>
        {CONTENTS[name]()}
      </ModalBody>
      <ModalFooter>
        <Button variant="link" isInline onClick={onClose}>
          Close
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function Keys({ title, keys }: { title: string; keys: readonly (readonly [string, string])[] }) {
  return (
    <>
      <Content component="h3">{title}</Content>
      <DescriptionList isHorizontal isCompact termWidth="8rem">
        {keys.map(([key, action]) => (
          <DescriptionListGroup key={key}>
            <DescriptionListTerm>
              <kbd>{key}</kbd>
            </DescriptionListTerm>
            <DescriptionListDescription>{action}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
      </DescriptionList>
    </>
  );
}

function Shortcuts() {
  const { shortcuts } = usePreferences();
  return (
    <>
      <Checkbox
        id="single-key-shortcuts"
        label="Use single-key shortcuts"
        description="Turn them off if you use speech input, or if they get in the way of other software."
        isChecked={shortcuts}
        onChange={(_, on) => setPreferences({ shortcuts: on })}
      />
      <Keys title="In the list of jobs" keys={LIST_SHORTCUTS} />
      <Keys title="In a log" keys={LOG_SHORTCUTS} />
    </>
  );
}

function Command({ children }: { children: string }) {
  return (
    <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="Command">
      {children}
    </ClipboardCopy>
  );
}

function CommandLine() {
  const cluster = useCapabilities().data?.cluster ?? false;
  return (
    <Content>
      <p>Everything on this page can be done from a terminal and from Python.</p>
      <h3>Install</h3>
      <Command>{cluster ? "pip install 'mpijob[kubernetes,terminal]'" : "pip install 'mpijob[local,terminal]'"}</Command>
      <h3>List your jobs</h3>
      <Command>mpijob list</Command>
      <h3>Find out why a job failed</h3>
      <Command>mpijob why NAME</Command>
      <h3>Python</h3>
      <Command>{'from mpijob import Client; Client().get("NAME").state()'}</Command>
    </Content>
  );
}

/** A link with a token that works once: the address of the page alone lets nobody in. */
function SignInLink() {
  const link = useMutation({ mutationFn: () => unwrap(api.POST("/api/v1/session/links")) });
  return (
    <Content>
      <p>The link signs one more browser in as you and works once. Don&apos;t share it.</p>
      {link.data ? (
        <ClipboardCopy isReadOnly hoverTip="Copy" clickTip="Copied" textAriaLabel="Sign-in link">
          {`${window.location.origin}/#token=${link.data.token}`}
        </ClipboardCopy>
      ) : (
        <Button variant="secondary" isLoading={link.isPending} onClick={() => link.mutate()}>
          Create link
        </Button>
      )}
      {link.error ? <ProblemAlert error={link.error} /> : null}
    </Content>
  );
}

function About() {
  const place = useCapabilities().data;
  if (!place) return null;
  return (
    <Details
      isHorizontal
      entries={[
        ["Version", place.version],
        ["Engine", place.engine],
        ["User", place.user],
        ["Default project", place.namespace],
        ["Workers per job", `up to ${place.max_workers}`],
      ]}
    />
  );
}
