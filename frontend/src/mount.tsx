/** For hosts without React of their own: mounts the page in an element of theirs. */
import { createRoot } from "react-dom/client";
import MPIJobs, { type Props } from "./remote";

export function mount(element: HTMLElement, props: Props = {}) {
  const root = createRoot(element);
  const show = (next: Props): void => root.render(<MPIJobs {...next} />);
  show(props);
  return { show, unmount: () => root.unmount() };
}
