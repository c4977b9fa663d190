import { EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter, PageSection } from "@patternfly/react-core";
import SearchIcon from "@patternfly/react-icons/dist/esm/icons/search-icon";
import { lazy, Suspense, type ReactNode } from "react";
import { Link, Navigate, Route, Routes, useLocation } from "react-router-dom";
import { isUnauthorized } from "./api/client";
import { LiveProvider } from "./api/live";
import { useSession } from "./api/session";
import { PageLoading } from "./components/PageLoading";
import { JobList } from "./jobs/JobList";
import { ConnectionBanner } from "./shell/ConnectionBanner";
import { EmbeddedProvider } from "./shell/embedding";
import { ErrorBoundary } from "./shell/ErrorBoundary";
import { Shell } from "./shell/Shell";
import { ToastProvider } from "./shell/toasts";

const Admin = lazy(() => import("./pages/Admin").then((page) => ({ default: page.Admin })));
const Compare = lazy(() => import("./pages/Compare").then((page) => ({ default: page.Compare })));
const CreateJob = lazy(() => import("./wizard/CreateJob").then((page) => ({ default: page.CreateJob })));
const JobDetails = lazy(() => import("./job/JobDetails").then((page) => ({ default: page.JobDetails })));
const Learn = lazy(() => import("./pages/Learn").then((page) => ({ default: page.Learn })));
const Queues = lazy(() => import("./pages/Queues").then((page) => ({ default: page.Queues })));
const SignIn = lazy(() => import("./pages/SignIn").then((page) => ({ default: page.SignIn })));

export const App = () => (
  <ErrorBoundary>
    <SignedIn>
      {(user) => (
        <Shell user={user}>
          <ConnectionBanner />
          <Screens />
        </Shell>
      )}
    </SignedIn>
  </ErrorBoundary>
);

/** The screens alone: masthead and navigation are the host's. */
export const EmbeddedApp = () => (
  <ErrorBoundary>
    <SignedIn>
      {() => (
        <EmbeddedProvider value>
          <ConnectionBanner />
          <Screens />
        </EmbeddedProvider>
      )}
    </SignedIn>
  </ErrorBoundary>
);

function SignedIn({ children }: { children: (user: string) => ReactNode }) {
  const session = useSession();
  if (session.isPending)
    return (
      <main>
        <PageLoading label="Signing in" />
      </main>
    );
  if (!session.data || isUnauthorized(session.error))
    return (
      <Suspense fallback={<PageLoading label="Loading" />}>
        <SignIn error={session.error} />
      </Suspense>
    );
  return (
    <LiveProvider>
      <ToastProvider>{children(session.data.user)}</ToastProvider>
    </LiveProvider>
  );
}

function Screens() {
  const { pathname, search } = useLocation();
  const query = new URLSearchParams(search);
  const draftOrigin = ["from", "template", "fix"].map((key) => query.get(key) ?? "").join(" "); // another origin is another draft
  return (
    <ErrorBoundary resetKey={pathname}>
      <Suspense fallback={<PageLoading label="Loading" />}>
        <Routes>
          <Route path="/jobs" element={<JobList />} />
          <Route path="/jobs/:namespace/:name" element={<JobDetails />} />
          <Route path="/jobs/:namespace/:name/:tab" element={<JobDetails />} />
          <Route path="/create" element={<CreateJob key={draftOrigin} />} />
          <Route path="/compare" element={<Compare />} />
          <Route path="/queues" element={<Queues />} />
          <Route path="/admin" element={<Admin />} />
          <Route path="/learn" element={<Learn />} />
          <Route path="/learn/:tab" element={<Learn />} />
          <Route path="/" element={<Navigate to="/jobs" replace />} />
          <Route path="*" element={<NotFound />} />
        </Routes>
      </Suspense>
    </ErrorBoundary>
  );
}

const NotFound = () => (
  <PageSection>
    <EmptyState titleText="Page not found" headingLevel="h1" icon={SearchIcon}>
      <EmptyStateBody>The address may be wrong, or the page may have moved.</EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          <Link to="/jobs">Go to training jobs</Link>
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  </PageSection>
);
