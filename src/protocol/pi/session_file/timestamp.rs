//! RFC 3339 timestamps of session files, such as `2026-02-28T10:00:00.000Z`.

use crate::kernel::time::Now;

const DAY_MILLIS: u64 = 86_400_000;

/// Formats a timestamp in UTC with milliseconds.
pub fn to_rfc3339(at: Now) -> String {
    // The format has four-digit years; later timestamps are clamped.
    let at = at.0.min(MAX_MILLIS);
    let (days, rest) = (at / DAY_MILLIS, at % DAY_MILLIS);
    let (year, month, day) = date(days);
    let (hour, minute, second, millis) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// 9999-12-31T23:59:59.999Z.
const MAX_MILLIS: u64 = 253_402_300_799_999;

/// Parses a timestamp; the fraction may have any length, and an offset may replace the `Z`.
pub fn parse_rfc3339(text: &str) -> Option<Now> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !text.is_ascii() || bytes.len() < 19 || separators.iter().any(|(at, byte)| bytes[*at] != *byte) {
        return None;
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let part = |from: usize, to: usize| number(&text[from..to]);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    let length = days_in_month(year, month)?;
    if year < 1970 || !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = &text[19..];
    let digits = rest.strip_prefix('.').map_or("", |fraction| {
        &fraction[..fraction.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(fraction.len())]
    });
    let zone = &rest[if digits.is_empty() { 0 } else { digits.len() + 1 }..];
    let millis = number(&format!("{digits:0<3}")[..3])?;
    let at = days_before(year, month) + day - 1;
    let at = at * DAY_MILLIS + hour * 3_600_000 + minute * 60_000 + second * 1000 + millis;
    apply_offset(at, zone).map(Now)
}

/// Converts a local time to UTC by its zone offset.
fn apply_offset(at: u64, zone: &str) -> Option<u64> {
    if matches!(zone, "Z" | "z" | "") {
        return Some(at);
    }
    let (sign, offset) = zone.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':').unwrap_or_else(|| offset.split_at_checked(2).unwrap_or(("", "")));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = hours * 3_600_000 + minutes * 60_000;
    match sign {
        "+" => at.checked_sub(offset),
        "-" => at.checked_add(offset),
        _ => None,
    }
}

/// Parses a string of digits only.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

const fn is_leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

/// Returns the number of days of a month.
const fn days_in_month(year: u64, month: u64) -> Option<u64> {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 if is_leap(year) => Some(29),
        2 => Some(28),
        _ => None,
    }
}

/// Returns the number of days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    let years = year - 1970;
    // Leap days since 1970; the first is in 1972.
    let past = year - 1;
    let leap_days = (past / 4 - past / 100 + past / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let months: u64 = (1..month).filter_map(|month| days_in_month(year, month)).sum();
    years * 365 + leap_days + months
}

/// Returns the date `days` days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days_before(year + 1, 1) <= days {
        year += 1;
    }
    let mut left = days - days_before(year, 1);
    let mut month = 1;
    while let Some(length) = days_in_month(year, month).filter(|length| left >= *length) {
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_272_800_123, "2026-02-28T10:00:00.123Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (MAX_MILLIS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(to_rfc3339(Now(at)), text);
            assert_eq!(parse_rfc3339(text), Some(Now(at)), "{text}");
        }
        assert_eq!(to_rfc3339(Now(u64::MAX)), "9999-12-31T23:59:59.999Z");
        for day in 0..60_000 {
            let at = Now(day * DAY_MILLIS + 1);
            assert_eq!(parse_rfc3339(&to_rfc3339(at)), Some(at), "{}", to_rfc3339(at));
        }
    }

    #[test]
    fn other_formats_are_parsed_and_invalid_ones_refused() {
        for text in [
            "2026-02-28T10:00:00Z",
            "2026-02-28 10:00:00",
            "2026-02-28T10:00:00.000000Z",
            "2026-02-28T12:30:00+02:30",
            "2026-02-28T08:00:00-0200",
        ] {
            assert_eq!(parse_rfc3339(text), Some(Now(1_772_272_800_000)), "{text}");
        }
        assert_eq!(parse_rfc3339("2026-02-28T10:00:00.5Z"), Some(Now(1_772_272_800_500)));
        for text in [
            "",
            "now",
            "2026-02-30T10:00:00Z",
            "2026-13-01T10:00:00Z",
            "2026-00-01T10:00:00Z",
            "1969-12-31T23:59:59Z",
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
