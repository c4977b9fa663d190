import {
  Button,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadMain,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSection,
  PageSidebar,
  PageSidebarBody,
  SkipToContent,
  Spinner,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from "@patternfly/react-core";
import MoonIcon from "@patternfly/react-icons/dist/esm/icons/moon-icon";
import SunIcon from "@patternfly/react-icons/dist/esm/icons/sun-icon";
import { lazy, Suspense, useEffect, useState, type ReactNode } from "react";
import { Link, Navigate, Route, Routes, useLocation } from "react-router-dom";
import { ApiProblem } from "./api/client";
import { Live } from "./api/live";
import { useSession } from "./api/session";
import { LiveBadge, Lost } from "./components/LiveBadge";
import { JobList } from "./pages/JobList";
import { SignIn } from "./pages/SignIn";
import { usePlace } from "./queries";

const CreateJob = lazy(() => import("./wizard/CreateJob").then((page) => ({ default: page.CreateJob })));
const JobDetails = lazy(() => import("./pages/JobDetails").then((page) => ({ default: page.JobDetails })));
const Glance = lazy(() => import("./pages/Glance").then((page) => ({ default: page.Glance })));
const Compare = lazy(() => import("./pages/Compare").then((page) => ({ default: page.Compare })));
const Admin = lazy(() => import("./pages/Admin").then((page) => ({ default: page.Admin })));
const Learn = lazy(() => import("./pages/Learn").then((page) => ({ default: page.Learn })));
const DARK = "pf-v6-theme-dark";

function wantsDark(): boolean {
  const kept = localStorage.getItem("theme");
  return kept ? kept === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

export const showColours = (): void => {
  document.documentElement.classList.toggle(DARK, wantsDark());
};

function useTheme(): [boolean, () => void] {
  const [dark, setDark] = useState(wantsDark);
  useEffect(() => {
    document.documentElement.classList.toggle(DARK, dark);
  }, [dark]);
  const toggle = (): void => {
    localStorage.setItem("theme", dark ? "light" : "dark");
    setDark(!dark);
  };
  return [dark, toggle];
}

export const App = () => <SignedIn>{(user) => <Shell user={user} />}</SignedIn>;

/** The places alone: head and navigation are the host's. */
export const Embedded = () => (
  <SignedIn>
    {() => (
      <>
        <Lost />
        <Places />
      </>
    )}
  </SignedIn>
);

function SignedIn({ children }: { children: (user: string) => ReactNode }) {
  const session = useSession();
  if (session.isPending)
    return (
      <main>
        <Spinner aria-label="Signing in" />
      </main>
    );
  const out = session.error instanceof ApiProblem && session.error.status === 401;
  if (!session.data || out) return <SignIn error={session.error} />;
  return <Live>{children(session.data.user)}</Live>;
}

function Shell({ user }: { user: string }) {
  const [dark, toggle] = useTheme();
  const { pathname: at } = useLocation();
  const place = usePlace();
  const masthead = (
    <Masthead>
      <MastheadMain>
        <MastheadBrand>
          <Link to="/jobs" className="brand">
            mpijob
          </Link>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isStatic>
          <ToolbarContent>
            <ToolbarGroup align={{ default: "alignEnd" }}>
              <ToolbarItem>
                <LiveBadge />
              </ToolbarItem>
              <ToolbarItem>
                {user} on {place.data?.engine ?? "…"}
              </ToolbarItem>
              <ToolbarItem>
                <Button
                  variant="plain"
                  aria-label={dark ? "Switch to light colours" : "Switch to dark colours"}
                  icon={dark ? <SunIcon /> : <MoonIcon />}
                  onClick={toggle}
                />
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
  const sidebar = (
    <PageSidebar>
      <PageSidebarBody>
        <Nav aria-label="Pages">
          <NavList>
            <NavItem isActive={at.startsWith("/jobs")}>
              <Link to="/jobs">Training jobs</Link>
            </NavItem>
            <NavItem isActive={at.startsWith("/queues")}>
              <Link to="/queues">Queues, quota and cost</Link>
            </NavItem>
            {place.data?.administrator ? (
              <NavItem isActive={at.startsWith("/admin")}>
                <Link to="/admin">Administration</Link>
              </NavItem>
            ) : null}
            <NavItem isActive={at.startsWith("/learn")}>
              <Link to="/learn">Learn</Link>
            </NavItem>
            <NavItem isActive={at.startsWith("/create")}>
              <Link to="/create">Create job</Link>
            </NavItem>
          </NavList>
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  );
  return (
    <Page
      masthead={masthead}
      sidebar={sidebar}
      skipToContent={<SkipToContent href="#content">Skip to content</SkipToContent>}
      mainContainerId="content"
      isManagedSidebar
    >
      <Lost />
      <Places />
    </Page>
  );
}

function Places() {
  const origin = new URLSearchParams(useLocation().search);
  const begun = ["from", "template", "fix"].map((key) => origin.get(key) ?? "").join(" ");
  return (
    <Suspense fallback={<Spinner aria-label="Loading" />}>
      <Routes>
        <Route path="/jobs" element={<JobList />} />
        <Route path="/jobs/:namespace/:name" element={<JobDetails />} />
        <Route path="/jobs/:namespace/:name/:tab" element={<JobDetails />} />
        <Route path="/create" element={<CreateJob key={begun} />} />
        <Route path="/compare" element={<Compare />} />
        <Route path="/admin" element={<Admin />} />
        <Route path="/learn" element={<Learn />} />
        <Route path="/queues" element={<Glance />} />
        <Route path="/" element={<Navigate to="/jobs" replace />} />
        <Route
          path="*"
          element={
            <PageSection>
              <h1>There is no such page</h1>
              <Link to="/jobs">Training jobs</Link>
            </PageSection>
          }
        />
      </Routes>
      </Suspense>
  );
}
