import { useEffect, useState } from "react";
import { useMedia } from "../lib/hooks";
import { preferences, usePreferences } from "./preferences";

const DARK_CLASS = "pf-v6-theme-dark";
const SYSTEM_DARK = "(prefers-color-scheme: dark)";

const show = (dark: boolean): void => {
  document.documentElement.classList.toggle(DARK_CLASS, dark);
};

/** Set the theme before anything is drawn: no flash of the other one. */
export function applyTheme(): void {
  const { theme } = preferences();
  show(theme === "system" ? window.matchMedia(SYSTEM_DARK).matches : theme === "dark");
}

/** Keep the theme as the preference and the system say. */
export function useTheme(): void {
  const { theme } = usePreferences();
  const systemDark = useMedia(SYSTEM_DARK);
  const dark = theme === "system" ? systemDark : theme === "dark";
  useEffect(() => show(dark), [dark]);
}

/** Whether the page is dark now: the host's theme where the page is embedded. */
export const isDark = (): boolean => document.documentElement.classList.contains(DARK_CLASS);

/** The same, followed while the page is open: charts and the editor are drawn in colours of their own. */
export function useIsDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const observer = new MutationObserver(() => setDark(isDark()));
    observer.observe(document.documentElement, { attributeFilter: ["class"] });
    return () => observer.disconnect();
  }, []);
  return dark;
}
