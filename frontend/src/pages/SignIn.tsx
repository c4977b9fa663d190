import { Alert, Button, Form, FormGroup, LoginPage, TextInput } from "@patternfly/react-core";
import { useState } from "react";
import { ApiError, isUnauthorized } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { usePageTitle } from "../lib/hooks";

const TITLE = "Training jobs";

/** Shown to those who are not signed in, with the way in. */
export function SignIn({ error }: { error: unknown }) {
  const [address, setAddress] = useState("");
  usePageTitle("Sign in");
  const token = address.trim().split("#token=").pop() ?? "";
  const enter = (): void => {
    window.location.hash = `token=${token}`;
    window.location.reload();
  };
  const problem = error instanceof ApiError && isUnauthorized(error) ? error.problem : null;
  const message = problem ? <Alert isInline isPlain variant="info" component="p" title={problem.message} /> : null;
  if (problem && !problem.hint.includes("mpijob ui"))
    return (
      <LoginPage loginTitle={TITLE} loginSubtitle={problem.hint}>
        {message}
        <Button isBlock onClick={() => window.location.reload()}>
          Sign in again
        </Button>
      </LoginPage>
    );
  return (
    <LoginPage loginTitle={TITLE} loginSubtitle="Run `mpijob ui` in a terminal and open the printed URL.">
      {error && !problem ? <ProblemAlert error={error} /> : null}
      {message}
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          enter();
        }}
      >
        <FormGroup label="URL or token" fieldId="token">
          <TextInput id="token" value={address} onChange={(_, value) => setAddress(value)} autoComplete="off" />
        </FormGroup>
        <Button type="submit" isDisabled={!token} isBlock>
          Sign in
        </Button>
      </Form>
    </LoginPage>
  );
}
