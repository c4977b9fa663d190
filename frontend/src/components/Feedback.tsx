import { Button, Flex, FlexItem } from "@patternfly/react-core";
import ThumbsDownIcon from "@patternfly/react-icons/dist/esm/icons/outlined-thumbs-down-icon";
import ThumbsUpIcon from "@patternfly/react-icons/dist/esm/icons/outlined-thumbs-up-icon";
import { useState } from "react";
import { sendFeedback } from "../api/client";

/** Whether a piece of help was helpful; the server counts the answers. */
export function Feedback({ topic }: { topic: string }) {
  const [answer, setAnswer] = useState("");
  const send = (helpful: boolean): void => {
    setAnswer("Thank you.");
    sendFeedback(topic, helpful).catch(() => setAnswer("Couldn't save your feedback."));
  };
  return (
    <div role="status">
      {answer || (
        <Flex gap={{ default: "gapXs" }} alignItems={{ default: "alignItemsCenter" }}>
          <FlexItem>Helpful?</FlexItem>
          <Button variant="plain" size="sm" aria-label="Yes, helpful" icon={<ThumbsUpIcon />} onClick={() => send(true)} />
          <Button variant="plain" size="sm" aria-label="No, not helpful" icon={<ThumbsDownIcon />} onClick={() => send(false)} />
        </Flex>
      )}
    </div>
  );
}
