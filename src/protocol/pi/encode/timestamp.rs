//! Timestamps of the protocol: RFC 3339 in UTC with milliseconds.

use crate::kernel::time::Now;

/// Formats a timestamp, such as `2026-02-28T10:00:00.000Z`.
pub fn to_rfc3339(at: Now) -> String {
    let (seconds, millis) = (at.0 / 1000, at.0 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns year, month and day of a number of days since 1970.
const fn date(days: u64) -> (u64, u64, u64) {
    // Counted from the first of March of the year 0, a leap day is the last of its year, and 400 years are one cycle.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, every five months have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_as_rfc3339() {
        for (at, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_868_799_001, "2000-02-29T23:59:59.001Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_772_272_800_000, "2026-02-28T10:00:00.000Z"),
            (1_772_323_200_000, "2026-03-01T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(to_rfc3339(Now(at)), written);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = date(0);
        for days in 1..200_000 {
            let next = date(days);
            let follows =
                next == (last.0, last.1, last.2 + 1) || next == (last.0, last.1 + 1, 1) || next == (last.0 + 1, 1, 1);
            assert!(follows && next.2 <= 31 && next.1 <= 12, "{last:?} {next:?}");
            last = next;
        }
    }
}
