import { useEffect, useState } from "react";
import { useSearchParams, type NavigateOptions } from "react-router-dom";

/** The time in seconds, moving once a second while somebody looks. */
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

/** A value that follows another once it has rested. */
export function useRested<T>(value: T, milliseconds: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setRested(value), milliseconds);
    return () => window.clearTimeout(timer);
  }, [value, milliseconds]);
  return rested;
}

/** The title of the browser's tab; screen readers say it when the page changes. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Training jobs`;
  }, [title]);
}

/** What is asked in the address, and how to change it. The routers draw a changed address at once (`useTransitions={false}`), as any other state. */
export function useAsked(): [URLSearchParams, (change: (next: URLSearchParams) => void, options?: NavigateOptions) => void] {
  const [params, setParams] = useSearchParams();
  const change = (edit: (next: URLSearchParams) => void, options?: NavigateOptions): void => {
    const next = new URLSearchParams(params);
    edit(next);
    setParams(next, options);
  };
  return [params, change];
}
