import { Button, Form, FormGroup, LoginPage, TextInput } from "@patternfly/react-core";
import { useState } from "react";
import { ApiProblem } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { useTitle } from "../hooks";

/** Who is not signed in is told the way in. */
export function SignIn({ error }: { error: unknown }) {
  const [address, setAddress] = useState("");
  useTitle("Sign in");
  const token = address.trim().split("#token=").pop() ?? "";
  const enter = (): void => {
    window.location.hash = `token=${token}`;
    window.location.reload();
  };
  const expired = error instanceof ApiProblem && error.status === 401;
  if (expired && !error.problem.hint.includes("mpijob ui"))
    return (
      <LoginPage loginTitle="Training jobs" loginSubtitle={error.problem.hint}>
        <p role="status">{error.problem.message}</p>
        <Button isBlock onClick={() => window.location.reload()}>
          Sign in again
        </Button>
      </LoginPage>
    );
  return (
    <LoginPage loginTitle="Training jobs" loginSubtitle="Run `mpijob ui` in a terminal and open the address that it prints.">
      {error && !expired ? <ProblemAlert error={error} /> : null}
      {expired ? <p role="status">{error.problem.message}</p> : null}
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          enter();
        }}
      >
        <FormGroup label="Address or token" fieldId="token">
          <TextInput id="token" value={address} onChange={(_, value) => setAddress(value)} autoComplete="off" />
        </FormGroup>
        <Button type="submit" isDisabled={!token} isBlock>
          Sign in
        </Button>
      </Form>
    </LoginPage>
  );
}
