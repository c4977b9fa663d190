/** Short messages about what has just been done; they go away by themselves and can be read in the drawer of notifications. */
import { Alert, AlertActionCloseButton, AlertActionLink, AlertGroup } from "@patternfly/react-core";
import { createContext, useCallback, useContext, useState, type ReactNode } from "react";

export interface Toast {
  readonly title: string;
  readonly variant?: "success" | "danger" | "warning" | "info";
  readonly text?: string;
  /** Stays until it is closed. */
  readonly isSticky?: boolean;
  readonly action?: { readonly label: string; readonly onClick: () => void };
}

type Add = (toast: Toast) => void;

const ToastContext = createContext<Add>(() => undefined);

/** Return a function that shows a message. */
export const useToasts = (): Add => useContext(ToastContext);

const TIMEOUT_MS = 8000;
const MOST = 4;
let lastId = 0;

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly (Toast & { id: number })[]>([]);
  const add = useCallback<Add>((toast) => setToasts((shown) => [{ ...toast, id: (lastId += 1) }, ...shown].slice(0, MOST)), []);
  const remove = (id: number): void => setToasts((shown) => shown.filter((toast) => toast.id !== id));
  return (
    <ToastContext.Provider value={add}>
      {children}
      <AlertGroup isToast isLiveRegion aria-label="Messages">
        {toasts.map(({ id, title, variant = "success", text, isSticky, action }) => (
          <Alert
            key={id}
            variant={variant}
            title={title}
            timeout={isSticky ? false : TIMEOUT_MS}
            onTimeout={() => remove(id)}
            actionClose={<AlertActionCloseButton onClose={() => remove(id)} />}
            actionLinks={
              action ? (
                <AlertActionLink
                  onClick={() => {
                    remove(id);
                    action.onClick();
                  }}
                >
                  {action.label}
                </AlertActionLink>
              ) : undefined
            }
          >
            {text}
          </Alert>
        ))}
      </AlertGroup>
    </ToastContext.Provider>
  );
}
