/** Collects what happens to the user's jobs while a tab is open, and shows it where the user wants it. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useSyncExternalStore } from "react";
import { useNavigate } from "react-router-dom";
import { rowKey, type JobList, type JobRow } from "../api/client";
import { onJobChanges } from "../api/live";
import { useCapabilities } from "../api/queries";
import { jobPath } from "../lib/links";
import { noticeOf, TITLES, withNotices, type Notice } from "./notices";
import { preferences } from "./preferences";
import { useToasts } from "./toasts";

const KEY = "mpijob.notifications";
const listeners = new Set<() => void>();
let known: readonly Notice[] | null = null;

function stored(): readonly Notice[] {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]") as unknown;
    return Array.isArray(found) ? (found as Notice[]) : [];
  } catch {
    return [];
  }
}

const current = (): readonly Notice[] => (known ??= stored());

function update(notices: readonly Notice[]): void {
  known = notices;
  localStorage.setItem(KEY, JSON.stringify(notices));
  listeners.forEach((listener) => listener());
}

function subscribe(listener: () => void): () => void {
  const onStorage = (event: StorageEvent): void => {
    if (event.key === KEY) {
      known = stored(); // another tab
      listener();
    }
  };
  listeners.add(listener);
  window.addEventListener("storage", onStorage);
  return () => {
    listeners.delete(listener);
    window.removeEventListener("storage", onStorage);
  };
}

export const useNotices = (): readonly Notice[] => useSyncExternalStore(subscribe, current);
export const markRead = (id: string): void => update(current().map((notice) => (notice.id === id ? { ...notice, read: true } : notice)));
export const markAllRead = (): void => update(current().map((notice) => ({ ...notice, read: true })));
export const clearNotices = (): void => update([]);

/** Whether this browser can show notifications, and has been allowed to. */
export const browserPermission = (): NotificationPermission | "unsupported" => ("Notification" in window ? Notification.permission : "unsupported");

function showInBrowser(notice: Notice, open: () => void): void {
  if (!document.hidden || !preferences().browserNotifications || browserPermission() !== "granted") return;
  const shown = new Notification(TITLES[notice.kind](notice.name), { body: notice.text, tag: notice.id });
  shown.onclick = () => {
    window.focus();
    open();
    shown.close();
  };
}

/** Watch the user's jobs as long as the page is open: at a cluster those that they own, on one machine all. */
export function useNotificationFeed(user: string): void {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const toast = useToasts();
  const cluster = useCapabilities().data?.cluster ?? false;
  const rows = useRef(new Map<string, JobRow>());
  const since = useRef(Date.now() / 1000);
  const latest = useRef({ navigate, toast });
  useEffect(() => {
    latest.current = { navigate, toast };
  });
  useEffect(
    () =>
      onJobChanges((changed) => {
        const listed = new Map(queries.getQueriesData<JobList>({ queryKey: ["jobs"] }).flatMap(([, list]) => list?.items ?? []).map((row) => [rowKey(row), row]));
        const added = changed.flatMap((row) => {
          const before = rows.current.get(rowKey(row)) ?? listed.get(rowKey(row));
          rows.current.set(rowKey(row), row);
          const notice = noticeOf(before, row, since.current);
          return notice && (!cluster || row.owner === user) ? [notice] : [];
        });
        const news = added.filter((notice) => !current().some((one) => one.id === notice.id));
        if (!news.length) return;
        update(withNotices(current(), news));
        for (const notice of news) {
          const open = (): void => void latest.current.navigate(jobPath(notice));
          showInBrowser(notice, open);
          if (!document.hidden && !window.location.pathname.startsWith(jobPath(notice)))
            latest.current.toast({
              title: TITLES[notice.kind](notice.name),
              variant: notice.kind === "succeeded" ? "success" : notice.kind === "failed" ? "danger" : "warning",
              text: notice.text,
              action: { label: "View job", onClick: open },
            });
        }
      }),
    [queries, cluster, user],
  );
}
