/** The page as a part of another: a component that the ODH dashboard, or any other host of module federation, mounts.
 * It owns no browser history: it starts where the host says and tells the host where it goes. */
import "./page.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { MemoryRouter, useLocation, useNavigate } from "react-router-dom";
import { Embedded } from "./App";
import { makeQueries } from "./queries";
import { serveFrom } from "./where";

export interface Props {
  /** Where in the host's addresses the page lives, as in `/develop-train/mpijobs`. */
  basename?: string;
  /** Which of our places to show: the rest of the host's address. */
  path?: string;
  /** Where the host passes requests on to our server, as in `/mpijob`. */
  api?: string;
  /** Only the jobs of this project, where the host has one chosen. */
  namespace?: string;
  /** Called with the place, basename left out, whenever it changes. */
  onNavigate?: (path: string) => void;
}

function Follow({ path, onNavigate }: { path: string; onNavigate: ((path: string) => void) | undefined }) {
  const { pathname, search } = useLocation();
  const navigate = useNavigate();
  const here = pathname + search;
  const told = useRef(path);
  const asked = useRef(path);
  useEffect(() => {
    if (told.current === here) return;
    told.current = here;
    onNavigate?.(here);
  }, [here, onNavigate]);
  useEffect(() => {
    if (path === asked.current) return; // only a new wish of the host moves us
    asked.current = path;
    if (path !== told.current) void navigate(path);
  }, [path, navigate]);
  return null;
}

export default function MPIJobs({ basename = "", path, api = "", namespace = "", onNavigate }: Props) {
  serveFrom(api);
  const queries = useMemo(makeQueries, []);
  const first = path ?? (namespace ? `/jobs?namespace=${encodeURIComponent(namespace)}` : "/jobs");
  return (
    <QueryClientProvider client={queries}>
      <MemoryRouter key={namespace} {...(basename ? { basename } : {})} initialEntries={[`${basename}${first}`]} useTransitions={false}>
        <Follow path={first} onNavigate={onNavigate} />
        <Embedded />
      </MemoryRouter>
    </QueryClientProvider>
  );
}
