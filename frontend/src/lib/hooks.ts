import { useCallback, useEffect, useRef, useState } from "react";
import { useSearchParams, type NavigateOptions } from "react-router-dom";

/** The time in seconds, moving once a second while the tab is visible. */
export function useNow(): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden) setNow(Date.now() / 1000);
    }, 1000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

/** A value that follows another once that has not changed for a while. */
export function useDebounced<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), milliseconds);
    return () => window.clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/** The title of the browser's tab; screen readers announce it when the page changes. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Training jobs`;
  }, [title]);
}

type Edit = (change: (params: URLSearchParams) => void, options?: NavigateOptions) => void;

/** The query of the address, and how to change it. The routers show a changed address at once (`useTransitions={false}`). */
export function useQueryParams(): [URLSearchParams, Edit] {
  const [params, setParams] = useSearchParams();
  const latest = useRef({ params, setParams });
  useEffect(() => {
    latest.current = { params, setParams };
  });
  const edit = useCallback<Edit>((change, options) => {
    const next = new URLSearchParams(latest.current.params);
    change(next);
    latest.current.setParams(next, options);
  }, []);
  return [params, edit];
}

/** Text that is typed here at once, and handed on once it has not changed for a moment. */
export function useTypedText(value: string, onSettled: (text: string) => void, milliseconds = 300): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const [known, setKnown] = useState({ value, sent: value });
  const timer = useRef(0);
  if (value !== known.value) {
    setKnown({ ...known, value });
    if (value !== known.sent) setText(value); // changed from outside: a chip was removed, or the user went back
  }
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const change = (next: string): void => {
    setText(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      setKnown((before) => ({ ...before, sent: next }));
      onSettled(next);
    }, milliseconds);
  };
  return [text, change];
}

/** Whether a media query holds; it may change while the page is open. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => window.matchMedia(query).matches);
  useEffect(() => {
    const media = window.matchMedia(query);
    const update = (): void => setMatches(media.matches);
    update();
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** The width below which a page is read on a phone; PatternFly's breakpoint `md`. */
export const usePhone = (): boolean => useMedia("(max-width: 767.98px)");
