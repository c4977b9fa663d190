import { Alert, Bullseye, Button, Card, CardBody, CardTitle, Form, FormGroup, TextInput } from "@patternfly/react-core";
import { useState } from "react";
import { ApiError, isUnauthorized } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { capitalized } from "../lib/format";
import { usePageTitle } from "../lib/hooks";
import { Brand } from "../shell/Brand";
import styles from "./pages.module.css";

/** Shown to those who are not signed in, with the way in. */
export function SignIn({ error }: { error: unknown }) {
  usePageTitle("Sign in");
  const problem = error instanceof ApiError && isUnauthorized(error) ? error.problem : null;
  const isCluster = problem && !problem.hint.includes("mpijob ui");
  return (
    <Bullseye className={styles["signIn"] ?? ""}>
      <Card component="main" className={styles["signInCard"] ?? ""}>
        <CardTitle component="h1" className={styles["signInTitle"] ?? ""}>
          <Brand /> Sign in to mpijob
        </CardTitle>
        <CardBody className={styles["column"] ?? ""}>
          {error && !problem ? <ProblemAlert error={error} /> : null}
          {problem ? <Alert isInline isPlain variant="info" component="p" title={capitalized(problem.message)} /> : null}
          {isCluster ? (
            <>
              <p>{capitalized(problem.hint)}</p>
              <Button isBlock onClick={() => window.location.reload()}>
                Sign in again
              </Button>
            </>
          ) : (
            <TokenForm />
          )}
        </CardBody>
      </Card>
    </Bullseye>
  );
}

/** On one machine the way in is the URL that the server printed. */
function TokenForm() {
  const [address, setAddress] = useState("");
  const token = address.trim().split("#token=").pop() ?? "";
  const enter = (): void => {
    window.location.hash = `token=${token}`;
    window.location.reload();
  };
  return (
    <>
      <p>
        Run <code>mpijob ui</code> in a terminal and open the printed URL, or paste it here.
      </p>
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
    </>
  );
}
