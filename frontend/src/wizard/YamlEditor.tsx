/** The job file in an editor. It lives in a shadow root: there its styles are adopted sheets, which the content
 * security policy allows, and not inline ones, which it does not. */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { defaultHighlightStyle, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { Finding } from "../api/client";
import { useIsDark } from "../shell/theme";
import { lineOf } from "./document";
import styles from "./wizard.module.css";

interface Props {
  text: string;
  findings: readonly Finding[];
  onText: (text: string) => void;
}

const DARK = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "#92c5f9" },
  { tag: [tags.string, tags.content], color: "#e0e0e0" },
  { tag: tags.comment, color: "#b8bbbe", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null], color: "#f8ae54" },
  { tag: [tags.punctuation, tags.separator, tags.bracket], color: "#c7c7c7" },
]);
const LIGHT = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "#004d99" },
  { tag: tags.comment, color: "#4d4d4d", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null], color: "#8f4700" },
]);

const editorTheme = (dark: boolean) =>
  EditorView.theme(
    {
      "&": {
        fontSize: "14px",
        border: "1px solid var(--pf-t--global--border--color--default)",
        borderRadius: "6px",
        backgroundColor: "var(--pf-t--global--background--color--primary--default)",
        color: "var(--pf-t--global--text--color--regular)",
      },
      "&.cm-focused": { outline: "2px solid var(--pf-t--global--color--brand--default)" },
      ".cm-content": { fontFamily: "var(--pf-t--global--font--family--mono)", caretColor: "currentColor" },
      ".cm-scroller": { minHeight: "24rem", maxHeight: "60vh", overflow: "auto" },
      ".cm-gutters": {
        backgroundColor: "var(--pf-t--global--background--color--secondary--default)",
        color: "var(--pf-t--global--text--color--subtle)",
        borderRight: "1px solid var(--pf-t--global--border--color--default)",
      },
      ".cm-activeLine": { backgroundColor: dark ? "#ffffff0f" : "#0000000a" },
      ".cm-cursor": { borderLeftColor: "currentColor" },
    },
    { dark },
  );

export default function YamlEditor({ text, findings, onText }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const report = useRef(onText);
  const latest = useRef(text);
  useEffect(() => {
    report.current = onText;
    latest.current = text;
  });
  const dark = useIsDark();

  useEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const made = new EditorView({
      root,
      parent: root as unknown as Element,
      state: EditorState.create({
        doc: latest.current,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          lintGutter(),
          search({ top: true }),
          yaml(),
          syntaxHighlighting(dark ? DARK : LIGHT),
          syntaxHighlighting(defaultHighlightStyle, { fallback: true }),
          keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap]), // Tab is left to the page: it leads on
          editorTheme(dark),
          EditorView.contentAttributes.of({ "aria-label": "Job as YAML", spellcheck: "false", tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) report.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, [dark]);

  useEffect(() => {
    const now = view.current;
    if (now && now.state.doc.toString() !== text)
      now.dispatch({ changes: { from: 0, to: now.state.doc.length, insert: text } });
  }, [text]);

  useEffect(() => {
    const now = view.current;
    if (!now) return;
    const marks = findings.flatMap((finding): Diagnostic[] => {
      const wanted = finding.line || (finding.field ? lineOf(now.state.doc.toString(), finding.field) : 0);
      if (!wanted || wanted > now.state.doc.lines) return [];
      const line = now.state.doc.line(wanted);
      return [{ from: line.from, to: line.to, severity: finding.severity === "warning" ? "warning" : "error", message: finding.message }];
    });
    now.dispatch(setDiagnostics(now.state, marks));
  }, [findings, text, dark]);

  return <div ref={box} className={styles["editor"]} />;
}
