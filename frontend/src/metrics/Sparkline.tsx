import { sparklinePath } from "./sparkline";
import styles from "./metrics.module.css";

const WIDTH = 120;
const HEIGHT = 32;

/** The shape of a curve, without axes; the numbers stand beside it. */
export function Sparkline({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const path = sparklinePath(values, WIDTH, HEIGHT);
  if (!path) return null;
  return (
    <svg className={styles["sparkline"]} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
