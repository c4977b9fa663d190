/** The little Markdown that descriptions need: paragraphs, lists, *emphasis*, **strength**, `code`. Text in, elements
 * out; markup in the text stays text, and there are no links to follow blindly. */
import { Fragment, type ReactNode } from "react";

const PIECES = /(\*\*[^*]+\*\*|\*[^*]+\*|_[^_]+_|`[^`]+`)/;

function inline(text: string): ReactNode[] {
  return text.split(PIECES).map((piece, at) => {
    if (/^\*\*[^*]+\*\*$/.test(piece)) return <strong key={at}>{piece.slice(2, -2)}</strong>;
    if (/^(\*[^*]+\*|_[^_]+_)$/.test(piece)) return <em key={at}>{piece.slice(1, -1)}</em>;
    if (/^`[^`]+`$/.test(piece)) return <code key={at}>{piece.slice(1, -1)}</code>;
    return <Fragment key={at}>{piece}</Fragment>;
  });
}

export function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      {text.split(/\n{2,}/).map((block, at) => {
        const lines = block.split("\n").filter((line) => line.trim());
        if (lines.length && lines.every((line) => /^\s*[-*] /.test(line)))
          return (
            <ul key={at}>
              {lines.map((line, row) => (
                <li key={row}>{inline(line.replace(/^\s*[-*] /, ""))}</li>
              ))}
            </ul>
          );
        return <p key={at}>{inline(block.replace(/^#+ /, ""))}</p>;
      })}
    </div>
  );
}
