/** The list by keyboard. Single letters act only while no other control has the focus, and can be turned off. */
import { useEffect } from "react";
import { useNavigate } from "react-router-dom";
import { usePreferences } from "../shell/preferences";

const rows = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>("[data-job]")];
const linkOf = (row: HTMLElement | undefined): HTMLElement | null => row?.querySelector<HTMLElement>("a") ?? null;
const currentRow = (): HTMLElement | undefined => rows().find((row) => row.contains(document.activeElement));

function move(step: number): void {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
  linkOf(all[next])?.focus();
}

const press = (selector: string): void => currentRow()?.querySelector<HTMLElement>(selector)?.click();

/** Whether a key press is meant for the list: nothing has the focus, or a row has. */
const isForList = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target === document.body || target.id === "content" || Boolean(target.closest("[data-job]")));

export function useListShortcuts(): void {
  const navigate = useNavigate();
  const { shortcuts } = usePreferences();
  useEffect(() => {
    if (!shortcuts) return undefined;
    const actions: Record<string, () => void> = {
      "/": () => document.querySelector<HTMLInputElement>("#job-search")?.focus(),
      c: () => void navigate("/create"),
      ArrowDown: () => move(1),
      j: () => move(1),
      ArrowUp: () => move(-1),
      k: () => move(-1),
      x: () => press("input[type=checkbox]"),
      o: () => press("[data-expand]"),
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || !isForList(event.target)) return;
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate, shortcuts]);
}
