/** The list by keyboard: / searches, c creates, arrows (or j and k) walk the rows, Enter opens, x selects, space looks. */
import { useEffect } from "react";
import { useNavigate } from "react-router-dom";

export const KEYS: readonly (readonly [string, string])[] = [
  ["/", "search"],
  ["c", "create a job"],
  ["↓ or j, ↑ or k", "next and previous job"],
  ["Enter", "open the job"],
  ["x", "select the job"],
  ["o", "a closer look at the job"],
];

const rows = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>("tr[data-job]")];
const link = (row: HTMLElement | undefined): HTMLElement | null => row?.querySelector<HTMLElement>("a") ?? null;

function walk(step: number): void {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  link(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))])?.focus();
}

function press(selector: string): void {
  rows().find((row) => row.contains(document.activeElement))?.querySelector<HTMLElement>(selector)?.click();
}

export function useListKeys(): void {
  const navigate = useNavigate();
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const at = event.target;
      if (!(at instanceof HTMLElement) || at.closest("input:not([type=checkbox]), textarea, select, [role=dialog], [role=menu]")) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const acts: Record<string, () => void> = {
        "/": () => document.querySelector<HTMLInputElement>("#search input, input#search")?.focus(),
        c: () => void navigate("/create"),
        ArrowDown: () => walk(1),
        j: () => walk(1),
        ArrowUp: () => walk(-1),
        k: () => walk(-1),
        x: () => press("input[type=checkbox]"),
        o: () => press(".pf-v6-c-table__toggle button"),
      };
      const act = acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate]);
}
