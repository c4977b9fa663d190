import { Button } from "@patternfly/react-core";
import { useState } from "react";
import { vote } from "../api/client";

/** Whether a help text helped; the server counts the answers. */
export function Helpful({ about }: { about: string }) {
  const [said, setSaid] = useState("");
  const say = (helpful: boolean): void => {
    setSaid("Thank you.");
    vote(about, helpful).catch(() => setSaid("This could not be counted."));
  };
  return (
    <p role="status" className="helpful">
      {said || (
        <>
          Was this helpful?{" "}
          <Button variant="link" isInline onClick={() => say(true)}>
            Yes
          </Button>{" "}
          <Button variant="link" isInline onClick={() => say(false)}>
            No
          </Button>
        </>
      )}
    </p>
  );
}
