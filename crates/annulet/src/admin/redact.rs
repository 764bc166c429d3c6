//! Redaction of secrets: passwords, tokens, credentials in addresses, and private keys.
//!
//! * A field or an option whose name has a word of [`SECRET_WORDS`] loses its value.
//! * In a text, `NAME=VALUE` and `NAME: VALUE` of such a name lose the value, as do `Bearer VALUE` and `Basic VALUE`;
//!   an address loses the part between `//` and `@`; the lines of a private key go.
//!
//! Invariant: the same text without its secrets, and with all else as it was.
//!
//! Left out: names and values of objects. A bundle has none but those in log lines.

use serde_json::Value;

/// The text in a secret's place.
const REDACTED: &str = "[redacted]";

/// Words in the names of secrets.
const SECRET_WORDS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "authorization",
    "credential",
];

/// Words before a secret in a header of HTTP.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// Redacts all secrets of a value.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            Value::String(_) | Value::Number(_) if is_secret(name) => *value = REDACTED.into(),
            value => redact(value),
        }),
        Value::Array(parts) => parts.iter_mut().for_each(redact),
        Value::String(text) => *text = text_without(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without its secrets.
pub(super) fn text_without(text: &str) -> String {
    let mut is_in_key = false;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if line.contains(KEY_BEGIN) && line.contains("PRIVATE KEY") {
            is_in_key = true;
            lines.push(REDACTED.to_owned());
        }
        if !is_in_key {
            lines.push(line_without(line));
        }
        is_in_key &= !line.contains(KEY_END);
    }
    lines.join("\n")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

fn line_without(line: &str) -> String {
    let mut line = line.to_owned();
    for word in SECRET_WORDS {
        line = cut_each(&line, word, after_name);
    }
    for scheme in SCHEMES {
        line = cut_each(&line, scheme, |rest| Some(value_of(rest, 0)));
    }
    cut_each(&line, "://", in_address)
}

/// Cuts the range that `find` names, of the text behind each place of `mark`.
fn cut_each(line: &str, mark: &str, find: impl Fn(&str) -> Option<(usize, usize)>) -> String {
    let lower = line.to_ascii_lowercase();
    let (mut out, mut at) = (String::new(), 0);
    while let Some(found) = lower[at..].find(mark) {
        let behind = at + found + mark.len();
        out.push_str(&line[at..behind]);
        at = behind;
        if let Some((from, to)) = find(&line[behind..]).filter(|(from, to)| from < to) {
            out.push_str(&line[behind..behind + from]);
            out.push_str(REDACTED);
            at = behind + to;
        }
    }
    out + &line[at..]
}

/// The value behind a name: after the rest of the name, `=` or `:`.
fn after_name(rest: &str) -> Option<(usize, usize)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-\"'".contains(c);
    let behind = rest.find(|c| !is_of_name(c))?;
    let gap = rest[behind..].find(|c: char| !c.is_whitespace())? + behind;
    rest[gap..].starts_with(['=', ':']).then(|| value_of(rest, gap + 1))
}

/// The range of the word from `from` on, without blanks and a quote before it. A scheme is no secret.
fn value_of(rest: &str, from: usize) -> (usize, usize) {
    let skipped = |c: char| c.is_whitespace() || c == '"' || c == '\'';
    let from = rest[from..].find(|c| !skipped(c)).map_or(rest.len(), |at| from + at);
    let lower = rest[from..].to_ascii_lowercase();
    if let Some(scheme) = SCHEMES.iter().find(|scheme| lower.starts_with(**scheme)) {
        return value_of(rest, from + scheme.len());
    }
    let ends = |c: char| c.is_whitespace() || "\"',;&}".contains(c);
    (from, rest[from..].find(ends).map_or(rest.len(), |at| from + at))
}

/// The part before an `@` in an address, if it has a password.
fn in_address(rest: &str) -> Option<(usize, usize)> {
    let host = &rest[..rest.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(rest.len())];
    let end = host.rfind('@')?;
    host[..end].contains(':').then_some((0, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn planted_secrets_are_gone_and_all_else_is_there() {
        for (text, shown) in [
            ("user=a password=hunter2 x=1", "user=a password=[redacted] x=1"),
            (r#"{"secret_access_key":"hunter2","n":1}"#, r#"{"secret_access_key":"[redacted]","n":1}"#),
            ("Authorization: Bearer hunter2, Host: h", "Authorization: Bearer [redacted], Host: h"),
            ("sent Basic aHVudGVyMg== to it", "sent Basic [redacted] to it"),
            ("GET https://u:hunter2@h:1/p?x=1", "GET https://[redacted]@h:1/p?x=1"),
            ("?API_KEY=hunter2&n=1", "?API_KEY=[redacted]&n=1"),
            ("Token : 'hunter2'", "Token : '[redacted]'"),
            ("a token was refused", "a token was refused"),
            ("https://h:1/a@b:c", "https://h:1/a@b:c"),
            ("peer_key = /certs/n1.key", "peer_key = /certs/n1.key"),
            ("ünïcode password=hünter2 ü", "ünïcode password=[redacted] ü"),
        ] {
            assert_eq!(text_without(text), shown);
        }
    }

    #[test]
    fn private_keys_go_with_all_their_lines() {
        let text = "before\n-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\nafter";
        assert_eq!(text_without(text), "before\n[redacted]\nafter");
        let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----";
        assert_eq!(text_without(certificate), certificate);
    }

    #[test]
    fn fields_with_secret_names_lose_their_values() {
        let mut value = json!({
            "options": { "backup_secret": "hunter2", "data": "/d", "Token": 7 }, "log": ["passwd: hunter2"], "n": 1,
        });
        redact(&mut value);
        let shown = json!({
            "options": { "backup_secret": "[redacted]", "data": "/d", "Token": "[redacted]" },
            "log": ["passwd: [redacted]"], "n": 1,
        });
        assert_eq!(value, shown);
    }
}
