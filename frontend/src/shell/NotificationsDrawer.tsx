import {
  Button,
  Content,
  EmptyState,
  EmptyStateBody,
  NotificationDrawer,
  NotificationDrawerBody,
  NotificationDrawerHeader,
  NotificationDrawerList,
  NotificationDrawerListItem,
  NotificationDrawerListItemBody,
  NotificationDrawerListItemHeader,
  Switch,
} from "@patternfly/react-core";
import BellIcon from "@patternfly/react-icons/dist/esm/icons/bell-icon";
import { useEffect, useRef, useState } from "react";
import { useNavigate } from "react-router-dom";
import { Time } from "../components/Time";
import { jobPath } from "../lib/links";
import { TITLES, type Notice } from "./notices";
import { browserPermission, clearNotices, markAllRead, markRead, useNotices } from "./notifications";
import { setPreferences, usePreferences } from "./preferences";
import styles from "./shell.module.css";

const VARIANTS = { succeeded: "success", failed: "danger", stuck: "warning" } as const;

/** What happened to the user's jobs while the page was open. */
export default function NotificationsDrawer({ onClose }: { onClose: () => void }) {
  const notices = useNotices();
  const navigate = useNavigate();
  const drawer = useRef<HTMLDivElement>(null);
  useEffect(() => drawer.current?.focus(), []);
  const open = (notice: Notice): void => {
    markRead(notice.id);
    onClose();
    void navigate(jobPath(notice));
  };
  return (
    <NotificationDrawer ref={drawer} tabIndex={-1} aria-label="Notifications">
      <NotificationDrawerHeader count={notices.filter((notice) => !notice.read).length} onClose={onClose}>
        {notices.length ? (
          <>
            <Button variant="link" onClick={markAllRead}>
              Mark all read
            </Button>
            <Button variant="link" onClick={clearNotices}>
              Clear all
            </Button>
          </>
        ) : null}
      </NotificationDrawerHeader>
      <NotificationDrawerBody>
        {notices.length ? (
          <NotificationDrawerList aria-label="Notifications">
            {notices.map((notice) => (
              <NotificationDrawerListItem key={notice.id} variant={VARIANTS[notice.kind]} isRead={notice.read} onClick={() => open(notice)}>
                <NotificationDrawerListItemHeader variant={VARIANTS[notice.kind]} title={TITLES[notice.kind](notice.name)} headingLevel="h2" />
                <NotificationDrawerListItemBody timestamp={<Time at={notice.time} />}>{notice.text || notice.namespace}</NotificationDrawerListItemBody>
              </NotificationDrawerListItem>
            ))}
          </NotificationDrawerList>
        ) : (
          <EmptyState titleText="No notifications" headingLevel="h2" icon={BellIcon} variant="sm">
            <EmptyStateBody>You are notified when one of your jobs succeeds, fails or stops responding.</EmptyStateBody>
          </EmptyState>
        )}
        <BrowserNotifications />
      </NotificationDrawerBody>
    </NotificationDrawer>
  );
}

/** Notifications of the browser itself, seen while another tab is open; other programs are called by the notifier. */
function BrowserNotifications() {
  const { browserNotifications } = usePreferences();
  const [permission, setPermission] = useState(browserPermission);
  const turn = async (on: boolean): Promise<void> => {
    if (on && permission === "default") setPermission(await Notification.requestPermission());
    setPreferences({ browserNotifications: on });
  };
  return (
    <div className={styles["browser"]}>
      <Switch
        id="browser-notifications"
        label="Browser notifications"
        isChecked={browserNotifications && permission === "granted"}
        isDisabled={permission === "denied" || permission === "unsupported"}
        onChange={(_, on) => void turn(on)}
      />
      <Content component="small">
        {permission === "denied"
          ? "Your browser blocks notifications of this site. Allow them in its settings."
          : permission === "unsupported"
            ? "Your browser does not support notifications here."
            : "Shown while another tab or window is in front."}
      </Content>
      <Content component="small">
        For a chat, a mailbox or a webhook, set <code>[[callbacks]]</code> in the settings file and run <code>mpijob notifier</code>.
      </Content>
    </div>
  );
}
