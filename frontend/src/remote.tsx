/** The page as a part of another: a component that the ODH dashboard, or any other host of module federation, mounts.
 * It owns no browser history: it starts where the host says and tells the host where it goes. */
import { QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { MemoryRouter, useLocation, useNavigate } from "react-router-dom";
import { setServerPrefix } from "./api/base";
import { createQueryClient } from "./api/queries";
import { EmbeddedApp } from "./App";

export interface Props {
  /** Where in the host's addresses the page lives, as in `/develop-train/mpijobs`. */
  basename?: string;
  /** Which of our screens to show: the rest of the host's address. */
  path?: string;
  /** Where the host passes requests on to our server, as in `/mpijob`. */
  api?: string;
  /** Only the jobs of this project, where the host has one chosen. */
  namespace?: string;
  /** Called with the path, basename left out, whenever it changes. */
  onNavigate?: (path: string) => void;
}

/** Keeps the host's address and ours the same. */
function SyncPath({ path, onNavigate }: { path: string; onNavigate: ((path: string) => void) | undefined }) {
  const { pathname, search } = useLocation();
  const navigate = useNavigate();
  const here = pathname + search;
  const reported = useRef(path);
  const wanted = useRef(path);
  useEffect(() => {
    if (reported.current === here) return;
    reported.current = here;
    onNavigate?.(here);
  }, [here, onNavigate]);
  useEffect(() => {
    if (path === wanted.current) return; // only a change by the host moves us
    wanted.current = path;
    if (path !== reported.current) void navigate(path);
  }, [path, navigate]);
  return null;
}

export default function MPIJobs({ basename = "", path, api = "", namespace = "", onNavigate }: Props) {
  setServerPrefix(api);
  const queries = useMemo(createQueryClient, []);
  const first = path ?? (namespace ? `/jobs?namespace=${encodeURIComponent(namespace)}` : "/jobs");
  return (
    <QueryClientProvider client={queries}>
      <MemoryRouter key={namespace} {...(basename ? { basename } : {})} initialEntries={[`${basename}${first}`]} useTransitions={false}>
        <SyncPath path={first} onNavigate={onNavigate} />
        <EmbeddedApp />
      </MemoryRouter>
    </QueryClientProvider>
  );
}
