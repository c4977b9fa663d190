/** For hosts without React of their own: the page in an element of theirs. */
import { createRoot } from "react-dom/client";
import MPIJobs, { type Props } from "./remote";

export function mount(place: HTMLElement, props: Props = {}) {
  const root = createRoot(place);
  const show = (now: Props): void => root.render(<MPIJobs {...now} />);
  show(props);
  return { show, unmount: () => root.unmount() };
}
