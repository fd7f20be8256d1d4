//! Parses durations: `90s`, `5m`, `2h`, `7d`, `2w`; a bare number is seconds.

use std::time::Duration;

/// The units and their length in seconds. `ms` comes before `s`, which is its suffix.
const UNITS: [(&str, f64); 6] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0), ("w", 604_800.0)];

/// Parses a duration, which may have a fraction and may be zero.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, *seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    let is_number = number.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = if is_number { number.parse().ok() } else { None };
    let number = number.ok_or("not a duration; examples: 90s, 5m, 2h, 7d; a bare number is seconds")?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".to_owned())
}

/// Parses a duration that must be longer than zero.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    let duration = age(text)?;
    if duration.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_units_and_a_bare_number_is_seconds() {
        for (text, millis) in [
            ("90", 90_000),
            ("1.5", 1_500),
            ("0.05s", 50),
            ("250ms", 250),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("0m", 0),
        ] {
            assert_eq!(age(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "x", "m", "-1", "-5m", "NaN", "inf", "1e300", "1e3", "5 m", "5y", "1.2.3", "5M"] {
            assert!(age(text).is_err(), "{text}");
        }
        assert!(age(&format!("{}d", "9".repeat(30))).is_err());
        assert!(limit("0").is_err() && limit("0s").is_err());
        assert_eq!(limit("1s"), Ok(Duration::from_secs(1)));
    }
}
