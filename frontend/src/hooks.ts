import { useEffect, useRef, useState } from "react";
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

/** What is asked in the address. Changes made before the next drawing add up: the router's own setter would lose all but the last. */
export function useAsked(): [URLSearchParams, (change: (next: URLSearchParams) => void, options?: NavigateOptions) => void] {
  const [params, setParams] = useSearchParams();
  const newest = useRef(params);
  const sent = useRef<readonly string[]>([]);
  useEffect(() => {
    const at = sent.current.indexOf(params.toString());
    sent.current = at < 0 ? [] : sent.current.slice(at + 1);
    if (!sent.current.length) newest.current = params;
  }, [params]);
  const change = (edit: (next: URLSearchParams) => void, options?: NavigateOptions): void => {
    const next = new URLSearchParams(newest.current);
    edit(next);
    newest.current = next;
    sent.current = [...sent.current, next.toString()];
    setParams(next, options);
  };
  return [params, change];
}
