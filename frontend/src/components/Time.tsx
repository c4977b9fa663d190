import { Timestamp } from "@patternfly/react-core";
import { ago } from "../lib/format";
import { clock, clockSeconds, dateTime, dateTimeZone } from "../lib/time";
import { usePreferences } from "../shell/preferences";

interface Props {
  /** Seconds since 1970. */
  at: number;
  /** `full` date and time, time of day to the `second`, or with milliseconds as a `clock` of a log. */
  format?: "full" | "second" | "clock";
  /** Within a link the tooltip is the link's own: it would be one more stop of the Tab key. */
  isInLink?: boolean;
}

/** A moment in the zone that the user has chosen; the zone is in the tooltip. */
export function Time({ at, format = "full", isInLink = false }: Props) {
  const { zone } = usePreferences();
  const text = format === "full" ? dateTime(at, zone) : format === "second" ? clockSeconds(at * 1000, zone) : clock(at * 1000, zone);
  const zoned = dateTimeZone(at, zone);
  if (isInLink)
    return (
      <time dateTime={new Date(at * 1000).toISOString()} title={zoned}>
        {text}
      </time>
    );
  return (
    <Timestamp date={new Date(at * 1000)} tooltip={{ variant: "custom", content: zone === "utc" ? zoned : `${zoned} (${dateTimeZone(at, "utc")})` }}>
      {text}
    </Timestamp>
  );
}

/** How long ago a moment is, for tables with many of them; the moment itself shows on hover. */
export function TimeAgo({ at, now }: { at: number | null; now: number }) {
  const { zone } = usePreferences();
  if (!at) return <>–</>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={dateTimeZone(at, zone)}>
      {ago(at, now)}
    </time>
  );
}
