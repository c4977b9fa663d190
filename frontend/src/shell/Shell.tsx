import {
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadLogo,
  MastheadMain,
  MastheadToggle,
  Nav,
  NavItem,
  NavList,
  NotificationBadge,
  Page,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Spinner,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from "@patternfly/react-core";
import BookOpenIcon from "@patternfly/react-icons/dist/esm/icons/book-open-icon";
import CogIcon from "@patternfly/react-icons/dist/esm/icons/cog-icon";
import CubesIcon from "@patternfly/react-icons/dist/esm/icons/cubes-icon";
import TachometerAltIcon from "@patternfly/react-icons/dist/esm/icons/tachometer-alt-icon";
import { lazy, Suspense, useState, type ReactNode } from "react";
import { Link, useLocation } from "react-router-dom";
import { useCapabilities } from "../api/queries";
import { useMedia, usePhone } from "../lib/hooks";
import { Brand } from "./Brand";
import type { DialogName } from "./dialogNames";
import { HelpMenu } from "./HelpMenu";
import { useNotices, useNotificationFeed } from "./notifications";
import { ProjectSelect } from "./ProjectSelect";
import styles from "./shell.module.css";
import { useTheme } from "./theme";
import { UserMenu } from "./UserMenu";

const NotificationsDrawer = lazy(() => import("./NotificationsDrawer"));
const Dialogs = lazy(() => import("./dialogs"));

/** Below it the navigation lies over the page and is opened by the masthead's button; PatternFly's breakpoint `xl`. */
const DOCKED = "(min-width: 1200px)";

const WITH_PROJECTS = ["/jobs", "/queues"];

/** Masthead, navigation and notifications around the screens. */
export function Shell({ user, children }: { user: string; children: ReactNode }) {
  useTheme();
  useNotificationFeed(user);
  const { pathname } = useLocation();
  const docked = useMedia(DOCKED);
  const isPhone = usePhone();
  const [sidebar, setSidebar] = useState({ docked: true, floating: false });
  const [visited, setVisited] = useState(pathname);
  if (pathname !== visited) {
    setVisited(pathname); // a screen was chosen: the navigation that lies over it goes away
    setSidebar({ ...sidebar, floating: false });
  }
  const [drawer, setDrawer] = useState(false);
  const [dialog, setDialog] = useState<DialogName | null>(null);
  const unread = useNotices().filter((notice) => !notice.read).length;
  const open = docked ? sidebar.docked : sidebar.floating;
  const toggle = (): void => setSidebar(docked ? { ...sidebar, docked: !sidebar.docked } : { ...sidebar, floating: !sidebar.floating });

  const masthead = (
    <Masthead display={{ default: "inline" }}>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton isHamburgerButton isSidebarOpen={open} aria-label="Navigation" aria-expanded={open} onSidebarToggle={toggle} />
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo component={(props) => <Link {...props} to="/jobs" aria-label="mpijob, training jobs" />} className={styles["brand"]}>
            <Brand />
            <span className={styles["brandName"]}>mpijob</span>
          </MastheadLogo>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isFullHeight isStatic>
          <ToolbarContent>
            <ToolbarGroup>
              <ToolbarItem>{WITH_PROJECTS.includes(pathname) && !isPhone ? <ProjectSelect /> : null}</ToolbarItem>
            </ToolbarGroup>
            <ToolbarGroup variant="action-group-plain" align={{ default: "alignEnd" }}>
              <ToolbarItem>
                <NotificationBadge
                  variant={unread ? "unread" : "read"}
                  count={unread}
                  aria-label={unread ? `Notifications, ${unread} unread` : "Notifications"}
                  isExpanded={drawer}
                  onClick={() => setDrawer(!drawer)}
                />
              </ToolbarItem>
              <ToolbarItem>
                <HelpMenu onDialog={setDialog} />
              </ToolbarItem>
              <ToolbarItem>
                <UserMenu user={user} onDialog={setDialog} />
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );

  return (
    <Page
      masthead={masthead}
      sidebar={
        // PatternFly sets the class only of sidebars that it opens itself
        <PageSidebar isSidebarOpen={open} className={open && !docked ? "pf-m-expanded" : ""}>
          <PageSidebarBody>
            <Navigation pathname={pathname} />
          </PageSidebarBody>
        </PageSidebar>
      }
      skipToContent={<SkipToContent href="#content">Skip to content</SkipToContent>}
      mainContainerId="content"
      isContentFilled
      notificationDrawer={
        // always there, if empty: without it the page has another shape, and the screen would begin anew
        <Suspense fallback={<Spinner aria-label="Loading notifications" />}>{drawer ? <NotificationsDrawer onClose={() => setDrawer(false)} /> : null}</Suspense>
      }
      isNotificationDrawerExpanded={drawer}
    >
      {children}
      {dialog ? (
        <Suspense fallback={null}>
          <Dialogs name={dialog} onClose={() => setDialog(null)} />
        </Suspense>
      ) : null}
    </Page>
  );
}

const SCREENS = [
  { path: "/jobs", label: "Training jobs", icon: CubesIcon },
  { path: "/queues", label: "Queues and usage", icon: TachometerAltIcon },
  { path: "/admin", label: "Administration", icon: CogIcon },
  { path: "/learn", label: "Learn", icon: BookOpenIcon },
] as const;

function Navigation({ pathname }: { pathname: string }) {
  const administrator = useCapabilities().data?.administrator ?? false;
  const under = (path: string): boolean => pathname.startsWith(path) || (path === "/jobs" && /^\/(create|compare)/.test(pathname));
  return (
    <Nav aria-label="Main">
      <NavList>
        {SCREENS.filter(({ path }) => path !== "/admin" || administrator).map(({ path, label, icon: Icon }) => (
          <NavItem key={path} to={path} isActive={under(path)} icon={<Icon />} component={(props) => <Link {...props} to={path} />}>
            {label}
          </NavItem>
        ))}
      </NavList>
    </Nav>
  );
}
