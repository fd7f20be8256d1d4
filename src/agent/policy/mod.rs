//! Which calls of a model go ahead, and which are asked about first.
//!
//! Without a sandbox, every write and every command of a model asks; reading goes ahead.

use crate::config::settings::Preset;
use crate::sandbox::tools::{Category, Risk};

/// Tells whether a call is asked about first.
pub fn asks(preset: Preset, category: Category, risk: Risk) -> bool {
    match preset {
        Preset::Standard | Preset::Strict => category != Category::Read,
        Preset::Trusted => risk == Risk::Critical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATEGORIES: [Category; 5] =
        [Category::Read, Category::Write, Category::Exec, Category::Git, Category::Network];

    #[test]
    fn reading_goes_ahead_and_nothing_else_does_unasked() {
        for preset in [Preset::Standard, Preset::Strict] {
            for category in CATEGORIES {
                assert_eq!(asks(preset, category, Risk::Low), category != Category::Read, "{category:?}");
            }
        }
    }

    #[test]
    fn who_is_trusted_is_asked_about_what_is_critical() {
        for category in CATEGORIES {
            assert!(asks(Preset::Trusted, category, Risk::Critical));
            assert!(!asks(Preset::Trusted, category, Risk::High));
        }
    }
}
