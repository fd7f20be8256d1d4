//! Days in the time zone of the machine.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::kernel::time::Now;

/// Returns the day of a time, in the time zone of the machine.
pub(super) fn local_day(at: Now) -> Date {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::system()).date()
}

/// Returns when a day begins, in the time zone of the machine.
pub(super) fn day_start(day: Date) -> Now {
    let start = day.to_zoned(TimeZone::system()).map(|start| start.timestamp().as_millisecond());
    Now(start.ok().and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0))
}
