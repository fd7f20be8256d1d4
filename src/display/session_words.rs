//! Words about a session in a list.

use crate::client::SessionItem;

/// Returns the name of a session or, without one, its last message.
pub(crate) fn title(item: &SessionItem) -> &str {
    let name = item.name.as_deref().filter(|name| !name.is_empty());
    name.or(item.last_user_message.as_deref()).unwrap_or_default()
}

/// Formats an age.
pub(crate) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_short() {
        assert_eq!([59_000, 60_000, 7_200_000, 172_800_000].map(age), ["59s", "1m", "2h", "2d"]);
    }
}
