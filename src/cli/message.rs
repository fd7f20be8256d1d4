//! The message of a verb: as it is, from standard input, or from a file.

use std::fs;
use std::io::{self, Read};

use super::exit::CliError;

/// Reads what `typed` stands for: `-` is standard input, `@FILE` a file, `@@…` a text that begins with `@`.
pub(crate) fn read(typed: &str, input: &mut dyn Read) -> Result<String, CliError> {
    let bytes = match (typed, typed.strip_prefix('@')) {
        ("-", _) => {
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes).map_err(|error| unreadable("standard input", error))?;
            bytes
        }
        (_, Some(rest)) if rest.starts_with('@') => rest.as_bytes().to_vec(),
        (_, Some(path)) => fs::read(path).map_err(|error| unreadable(path, error))?,
        (text, None) => text.as_bytes().to_vec(),
    };
    let text = String::from_utf8(bytes).map_err(|_| CliError::Usage("the message is not UTF-8".into()))?;
    if text.trim().is_empty() {
        return Err(CliError::Usage("the message is empty".into()));
    }
    Ok(text)
}

/// Reads what `typed` stands for, with the standard input of the process.
pub(crate) fn read_standard(typed: &str) -> Result<String, CliError> {
    read(typed, &mut io::stdin().lock())
}

fn unreadable(what: &str, error: io::Error) -> CliError {
    CliError::Usage(format!("cannot read {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    #[test]
    fn a_message_comes_from_the_line_from_input_or_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.md");
        fs::write(&path, "from a file\n").unwrap();
        assert_eq!(take("hello"), Ok("hello".into()));
        assert_eq!(take("-"), Ok("from input".into()));
        assert_eq!(take(&format!("@{}", path.display())), Ok("from a file\n".into()));
        assert_eq!(take("@@you"), Ok("@you".into()));
    }

    #[test]
    fn what_is_no_message_is_bad_usage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, [0xff]).unwrap();
        for typed in ["", "  \n", "@/no/such/file", &format!("@{}", path.display())] {
            assert_eq!(take(typed), Err(Exit::USAGE), "{typed:?}");
        }
    }

    fn take(typed: &str) -> Result<String, Exit> {
        read(typed, &mut &b"from input"[..]).map_err(|error| error.exit())
    }
}
