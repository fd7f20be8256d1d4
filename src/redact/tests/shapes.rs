//! Texts that are hidden because of their shape, and texts that are not.

use super::*;

#[test]
fn secret_shapes_are_hidden() {
    let redactor = Redactor::default();
    for (text, expected) in hidden_shapes() {
        assert_eq!(redactor.redact(&text), expected, "{text}");
        assert_eq!(redactor.redact(&expected), expected, "twice: {text}");
        for seed in 0..8 {
            assert_eq!(in_chunks(&redactor, &text, &mut Random::new(seed)), expected, "seed {seed}: {text}");
        }
        let around = format!("before\n{text}\nafter");
        let hidden = format!("before\n{expected}\nafter");
        assert_eq!(redactor.redact(&around), hidden, "{around}");
        assert_eq!(in_chunks(&redactor, &around, &mut Random::new(1)), hidden, "{around}");
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    let redactor = Redactor::from_environment([("API_KEY", "not-in-any-of-these-texts")]);
    for text in ORDINARY {
        assert_eq!(redactor.redact(text), *text);
        assert_eq!(in_chunks(&redactor, text, &mut Random::new(7)), *text);
    }
    let image = base64_of(&mut Random::new(3), 20_000);
    let inline = format!("![](data:image/png;base64,{image})");
    assert_eq!(redactor.redact(&inline), inline);
}

fn hidden_shapes() -> Vec<(String, String)> {
    let alphabet = "a1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0U1v2W3x4Y5z6A7b8C9d0E1f2";
    let upper = "A1B2C3D4E5F6G7H8";
    let mut table = Vec::new();
    for prefix in [
        "sk-",
        "sk-proj-",
        "sk-ant-api03-",
        "sk_live_",
        "ghp_",
        "gho_",
        "ghs_",
        "ghu_",
        "ghr_",
        "github_pat_11AA_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xoxr-",
        "xoxs-",
        "AIza",
        "npm_",
        "pypi-",
        "hf_",
        "att_",
        "ptk_",
    ] {
        table.push((format!("use {prefix}{alphabet}, please"), "use [redacted], please".to_owned()));
        table.push((format!("({prefix}{alphabet})"), "([redacted])".to_owned()));
        table.push((format!("\"{prefix}{alphabet}\""), "\"[redacted]\"".to_owned()));
    }
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED (x)\n\nMIIEpAIB\nAAKC+/==\n-----END RSA PRIVATE KEY-----";
    let rows = [
        (format!("id AKIA{upper}."), "id [redacted]."),
        (format!("id ASIA{upper}"), "id [redacted]"),
        (format!("jwt {jwt}."), "jwt [redacted]."),
        (pem.to_owned(), "[redacted]"),
        (format!("key: |\n  {}\nnext: 1", pem.replace('\n', "\n  ")), "key: |\n  [redacted]\nnext: 1"),
        (format!("{{\"k\": \"{}\", \"n\": 1}}", pem.replace('\n', "\\n")), "{\"k\": \"[redacted]\", \"n\": 1}"),
        ("Authorization: Bearer abcdefgh".into(), "Authorization: Bearer [redacted]"),
        ("authorization: Basic dXNlcjpwYXNz\r\nAccept: */*".into(), "authorization: Basic [redacted]\r\nAccept: */*"),
        ("-H 'Authorization: token abcdefghijkl'".into(), "-H 'Authorization: token [redacted]'"),
        ("{\"Authorization\":\"Bearer abcdef==\"}".into(), "{\"Authorization\":\"[redacted]\"}"),
        ("curl -H \"X: Bearer abc123def456\"".into(), "curl -H \"X: Bearer [redacted]\""),
        ("postgres://app:hunter2@db:5432/main".into(), "postgres://app:[redacted]@db:5432/main"),
        ("redis://:p@ss@cache/0 next".into(), "redis://:[redacted]@cache/0 next"),
        ("mysql://a:pa/ss?w@db/x".into(), "mysql://a:[redacted]@db/x"),
        ("(https://me:secret@example.com/a@b)".into(), "(https://me:[redacted]@example.com/a@b)"),
        ("password=hunter2hunter2".into(), "password=[redacted]"),
        ("password=correcthorse next".into(), "password=[redacted] next"),
        ("DB_PASSWORD=Pa$$w0rd!(x)&y, z".into(), "DB_PASSWORD=[redacted], z"),
        ("password: hunter2hunter2".into(), "password: [redacted]"),
        ("password: correcthorsebattery".into(), "password: [redacted]"),
        ("token: abcdef123456;".into(), "token: [redacted];"),
        ("API_KEY=supersecret123\nB=1".into(), "API_KEY=[redacted]\nB=1"),
        ("x-api-key: 0123456789abcdef".into(), "x-api-key: [redacted]"),
        ("apiKey = 'abcdefgh'".into(), "apiKey = '[redacted]'"),
        ("secret := \"correct horse battery\"".into(), "secret := \"[redacted]\""),
        ("'password' => 'hunter2hunter2',".into(), "'password' => '[redacted]',"),
        ("config[\"token\"] = \"abcdefgh\"".into(), "config[\"token\"] = \"[redacted]\""),
        ("{\\\"token\\\":\\\"abcdefgh\\\"}".into(), "{\\\"token\\\":\\\"[redacted]\\\"}"),
        ("password = 'unclosed123 and more".into(), "password = '[redacted] and more"),
        ("mysql --password hunter2hunter2 db".into(), "mysql --password [redacted] db"),
        ("?access_token=abcdef123456".into(), "?access_token=[redacted]"),
        (format!("password={}", "ab1".repeat(200)), "password=[redacted]"),
        (format!("secret: \"{}\" x", "a b".repeat(700)), "secret: \"[redacted]\" x"),
        (format!("密钥sk-{alphabet}é"), "密钥[redacted]é"),
    ];
    table.extend(rows.map(|(text, expected)| (text, expected.to_owned())));
    table
}

const ORDINARY: &[&str] = &[
    "The risk-assessment-of-the-whole-project-2024 is a task-force-matter.",
    ".sk-fading-circle .sk-circle-fade-dot:before { animation: sk-circleFadeDelay 1.2s infinite }",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8\nAuthor: Somebody <a@b.example>\nDate: Mon",
    "550e8400-e29b-41d4-a716-446655440000 and 01ARZ3NDEKTSV4RRFFQ69G5FAV, ses_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "/usr/share/doc/sk-something/README.md:12:34: warning: unused variable",
    "C:\\Users\\somebody\\AppData\\Local\\Temp\\file.txt",
    "let token = self.tokens.next()?;\nlet secret = Secret::new(bytes);\nif token == expected_token {",
    "struct User { password: Option<String>, token: TokenKind, api_key: &'static str, secret: [u8; 32] }",
    "def login(user, password=None, token=settings.token): return get(token=get_token(), key=os.environ['KEY'])",
    "password: process.env.DB_PASSWORD, token = current_token;",
    "password: user_password,\nsecret_key = base64.b64decode(text)",
    "error: unexpected token: identifier\nUnexpected token: something",
    "export TOKEN=$GITHUB_TOKEN API_KEY=${API_KEY} password=$(cat file) SECRET=%SECRET%",
    "token: ${{ secrets.GITHUB_TOKEN }} and password=******** and token=<your-token> and secret=xxxxxxxxxx",
    "token=/run/secrets/token password: ./secrets/password.txt secret = ~/secrets/one2three",
    "token: https://example.com/token/12345678",
    "--password <PASSWORD>   the password\n--token TOKEN_VALUE  a token\n--password --other",
    "http://localhost:8080/path@2x.png https://example.com:443?a=b@c ssh://git@host.example:org/repo http://[::1]:80/a@b",
    "https://example.com/a:b@c and std::env::var, a ? b://c : d, mailto:a@b.example",
    "Bearer authentication; the bearer of this letter; Basic knowledge; a basic authentication123; token 1234567890",
    "The Authorization: header. Authorization: required. max_tokens: 4096, \"completion_tokens\": 12345678",
    "-----BEGIN CERTIFICATE-----\nMIIBxTCCAWug\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "npm_config_registry npm_lifecycle_event hf_transformers_something att_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "AKIA and ASIA and EUROPE, AIza, eyJ, eyJhbGciOi.x, data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoiIn0=",
    "password:\n  - item\npassword = \npassword: \"short\" secret='' token=\"\"",
    "----- ---- ------BEGIN nothing PRIVATE KEY",
    "The secret: tell no one. My password: none. A monkey=bananabananabanana1",
    "ünïcödé テキスト 🦀 without anything",
];
