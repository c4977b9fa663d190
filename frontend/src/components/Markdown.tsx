/** Descriptions in Markdown. Markup in the text stays text; links open apart and tell nothing of where they were. */
import { Content } from "@patternfly/react-core";
import MarkdownToJsx from "markdown-to-jsx/react";
import type { ReactNode } from "react";

const SAFE_ADDRESS = /^https?:\/\//i;

function SafeLink({ href, children }: { href?: string; children?: ReactNode }) {
  if (!href || !SAFE_ADDRESS.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noreferrer noopener">
      {children}
    </a>
  );
}

const ImageText = ({ alt }: { alt?: string }) => <>{alt ?? ""}</>;

const OPTIONS = {
  disableParsingRawHTML: true,
  forceBlock: true,
  wrapper: Content,
  overrides: { a: SafeLink, img: ImageText, h1: "h3", h2: "h4", h3: "h5" },
} as const;

export default function Markdown({ text }: { text: string }) {
  return <MarkdownToJsx options={OPTIONS}>{text}</MarkdownToJsx>;
}
