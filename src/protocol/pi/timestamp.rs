//! RFC 3339 timestamps of the protocol and of session files, such as `2026-02-28T10:00:00.000Z`.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::Pieces;

use crate::kernel::time::Now;

/// The point in time at which [`Now`] is zero.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// Formats a timestamp in UTC with milliseconds.
///
/// The format has four-digit years; later timestamps are clamped. [`jiff::Timestamp`] ends a day before that, to leave
/// room for offsets, so the civil time is formatted.
pub fn to_rfc3339(at: Now) -> String {
    let since = i64::try_from(at.0).map_or(SignedDuration::MAX, SignedDuration::from_millis);
    format!("{:.3}Z", EPOCH.saturating_add(since))
}

/// Parses a timestamp. The fraction has at most nine digits, and an offset may replace the `Z`; without either the time
/// is taken as UTC.
pub fn parse_rfc3339(text: &str) -> Option<Now> {
    let pieces = Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset().map_or(0, |offset| offset.seconds());
    let local = pieces.date().to_datetime(pieces.time()?);
    let since = local.checked_sub(SignedDuration::from_secs(offset.into())).ok()?.duration_since(EPOCH);
    let since = Duration::try_from(since).ok()?;
    u64::try_from(since.as_millis()).ok().map(Now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_001, "2000-03-01T00:00:00.001Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (1_772_272_800_120, "2026-02-28T10:00:00.120Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(to_rfc3339(Now(at)), text);
            assert_eq!(parse_rfc3339(text), Some(Now(at)), "{text}");
        }
        for later in [253_402_300_800_000, i64::MAX.unsigned_abs(), u64::MAX] {
            assert_eq!(to_rfc3339(Now(later)), "9999-12-31T23:59:59.999Z");
        }
    }

    #[test]
    fn other_formats_are_parsed_and_invalid_ones_refused() {
        for text in [
            "2026-02-28T10:00:00Z",
            "2026-02-28 10:00:00",
            "2026-02-28t10:00:00z",
            "2026-02-28T10:00:00.000000Z",
            "2026-02-28T10:00:00.000999999Z",
            "2026-02-28T12:30:00+02:30",
            "2026-02-28T08:00:00-0200",
        ] {
            assert_eq!(parse_rfc3339(text), Some(Now(1_772_272_800_000)), "{text}");
        }
        assert_eq!(parse_rfc3339("2026-02-28T10:00:00.5Z"), Some(Now(1_772_272_800_500)));
        for text in [
            "",
            "now",
            "2026-02-28",
            "2026-02-30T10:00:00Z",
            "2026-13-01T10:00:00Z",
            "2026-00-01T10:00:00Z",
            "1969-12-31T23:59:59Z",
            "1969-12-31T23:59:59.9999Z",
            "2026-02-28T24:00:00Z",
            "2026-02-28T10:00:00+",
            "2026-02-28T10:00:00+é2:00",
            "2026-02-28T10:00:00+99:00",
            "2026-02-2éT10:00:00Z",
            "+026-02-28T10:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
