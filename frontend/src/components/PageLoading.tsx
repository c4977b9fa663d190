import { Bullseye, Spinner } from "@patternfly/react-core";

/** A screen that is still being loaded. */
export const PageLoading = ({ label }: { label: string }) => (
  <Bullseye style={{ minBlockSize: "12rem" }}>
    <Spinner aria-label={label} />
  </Bullseye>
);
