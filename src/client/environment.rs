//! Collects the user's environment for a run.
//!
//! Variables that describe the calling shell and pushd's own variables are left out. Values are never logged.

use std::ffi::OsString;

use crate::protocol::push::client::Environment;

/// The longest value that is sent, in bytes.
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// The largest environment that is sent, in bytes.
const MAX_TOTAL_BYTES: usize = 1024 * 1024;
/// The most variables that are sent.
const MAX_VARIABLES: usize = 4096;

/// Returns the variables that are sent with a request.
///
/// Variables that are not UTF-8 or that exceed the limits are left out.
pub fn collect(variables: impl Iterator<Item = (OsString, OsString)>) -> Environment {
    let mut taken = 0;
    let mut environment = Environment::new();
    for (name, value) in variables {
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else { continue };
        let size = name.len() + value.len();
        if !is_user_variable(&name)
            || value.len() > MAX_VALUE_BYTES
            || taken + size > MAX_TOTAL_BYTES
            || environment.len() == MAX_VARIABLES
        {
            continue;
        }
        taken += size;
        environment.insert(name, value);
    }
    environment
}

fn is_user_variable(name: &str) -> bool {
    let of_the_shell = ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
    // Windows keeps a directory per drive in variables like `=C:`.
    let malformed = name.is_empty() || name.contains(['=', '\0']);
    !of_the_shell && !malformed && !name.starts_with("PUSH_") && !name.starts_with("PUSHD_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_and_push_variables_are_not_sent() {
        let names = ["PATH", "PWD", "OLDPWD", "SHLVL", "_", "PUSH_HOME", "PUSHD_SOCKET", "LANG", "PUSHER"];
        let environment = collect(names.iter().map(|name| (OsString::from(name), OsString::from("x"))));
        assert_eq!(environment.into_keys().collect::<Vec<_>>(), ["LANG", "PATH", "PUSHER"]);
    }

    #[test]
    fn variables_over_the_limits_are_left_out() {
        let big = "x".repeat(MAX_VALUE_BYTES + 1);
        let fits = "y".repeat(MAX_VALUE_BYTES);
        let mut variables = vec![(OsString::from("BIG"), OsString::from(big))];
        variables.extend((0..40).map(|n| (OsString::from(format!("N{n:02}")), OsString::from(&fits))));
        let environment = collect(variables.into_iter());
        assert!(!environment.contains_key("BIG"));
        assert_eq!(environment.len(), 15);
    }

    #[cfg(unix)]
    #[test]
    fn variables_that_are_not_utf8_are_left_out() {
        use std::os::unix::ffi::OsStringExt;
        let variables = [
            (OsString::from("BAD"), OsString::from_vec(vec![0xff])),
            (OsString::from_vec(vec![0xfe]), OsString::from("x")),
            (OsString::from("GOOD"), OsString::from("ä")),
        ];
        assert_eq!(collect(variables.into_iter()).into_keys().collect::<Vec<_>>(), ["GOOD"]);
    }
}
