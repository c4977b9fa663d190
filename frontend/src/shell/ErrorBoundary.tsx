import { Button, ClipboardCopy, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter, PageSection } from "@patternfly/react-core";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import { Component, type ReactNode } from "react";

interface Props {
  children: ReactNode;
  /** A change of it (another address, say) tries again. */
  resetKey?: string;
}

interface State {
  error: Error | null;
  key: string | undefined;
}

/** Keeps a fault in one screen from taking the whole page away. */
export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null, key: this.props.resetKey };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  static getDerivedStateFromProps(props: Props, state: State): Partial<State> | null {
    return props.resetKey === state.key ? null : { error: null, key: props.resetKey };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <PageSection>
        <EmptyState titleText="This page has stopped working" headingLevel="h1" icon={ExclamationCircleIcon} status="danger">
          <EmptyStateBody>
            Your jobs are not affected. Try again, or reload the page. If it happens again, report this message:
            <ClipboardCopy isReadOnly hoverTip="Copy" clickTip="Copied" textAriaLabel="Error message">
              {`${error.name}: ${error.message}`}
            </ClipboardCopy>
          </EmptyStateBody>
          <EmptyStateFooter>
            <EmptyStateActions>
              <Button onClick={() => this.setState({ error: null })}>Try again</Button>
              <Button variant="link" onClick={() => window.location.reload()}>
                Reload
              </Button>
            </EmptyStateActions>
          </EmptyStateFooter>
        </EmptyState>
      </PageSection>
    );
  }
}
