import { Button, type ButtonProps } from "@patternfly/react-core";
import CopyIcon from "@patternfly/react-icons/dist/esm/icons/copy-icon";
import { useEffect, useState } from "react";

interface Props extends Omit<ButtonProps, "onClick" | "children"> {
  text: string | (() => string);
  label: string;
}

const SHOWN_MS = 2000;

/** Copies a text and says so. */
export function CopyButton({ text, label, variant = "link", ...props }: Props) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = window.setTimeout(() => setCopied(false), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [copied]);
  const copy = (): void => {
    void navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(() => setCopied(true));
  };
  return (
    <Button variant={variant} icon={<CopyIcon />} onClick={copy} {...props}>
      <span aria-live="polite">{copied ? "Copied" : label}</span>
    </Button>
  );
}
