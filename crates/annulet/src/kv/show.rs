//! Objects for a person's eyes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use client::{Content, Fetched};
use protocol::messages::Pair;
use std::io::{self, Write};
use time::UtcDateTime;

/// All that is known of an object but its values.
pub fn object(out: &mut impl Write, object: &Fetched) -> io::Result<()> {
    if let [only] = &object.siblings[..] {
        metadata(out, only)?;
    } else {
        siblings(out, object)?;
        for (index, sibling) in object.siblings.iter().enumerate() {
            writeln!(out, "sibling {}", index + 1)?;
            metadata(out, sibling)?;
        }
    }
    context(out, object)
}

/// A table of siblings.
pub fn siblings(out: &mut impl Write, object: &Fetched) -> io::Result<()> {
    writeln!(out, "{:>3}  {:26}  {:>10}  {:26}  last modified", "#", "vtag", "bytes", "content type")?;
    for (index, sibling) in object.siblings.iter().enumerate() {
        let (vtag, content_type) = (text(sibling.vtag.as_deref()), text(sibling.content_type.as_deref()));
        let bytes =
            if is_tombstone(sibling) { "deleted".to_owned() } else { sibling.value.len().to_string() };
        let modified = last_modified(sibling);
        writeln!(out, "{:>3}  {vtag:26}  {bytes:>10}  {content_type:26}  {modified}", index + 1)?;
    }
    Ok(())
}

/// One value's metadata.
pub fn metadata(out: &mut impl Write, content: &Content) -> io::Result<()> {
    row(out, "vtag", &text(content.vtag.as_deref()))?;
    row(out, "last modified", &last_modified(content))?;
    row(out, "content type", &text(content.content_type.as_deref()))?;
    row(out, "charset", &text(content.charset.as_deref()))?;
    row(out, "encoding", &text(content.content_encoding.as_deref()))?;
    row(out, "deleted", if is_tombstone(content) { "yes" } else { "" })?;
    for link in &content.links {
        let [bucket, key, tag] = [&link.bucket, &link.key, &link.tag].map(|part| text(part.as_deref()));
        row(out, "link", &format!("{bucket}/{key} {tag}"))?;
    }
    content.indexes.iter().try_for_each(|index| row(out, "index", &pair(index)))?;
    content.usermeta.iter().try_for_each(|meta| row(out, "meta", &pair(meta)))
}

/// What the next write must say that it follows.
pub fn context(out: &mut impl Write, object: &Fetched) -> io::Result<()> {
    row(out, "context", &BASE64_STANDARD.encode(&object.vclock))
}

fn row(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    if value.is_empty() { Ok(()) } else { writeln!(out, "{name:14} {value}") }
}

fn pair(pair: &Pair) -> String {
    format!("{}={}", text(Some(&pair.key)), text(pair.value.as_deref()))
}

fn is_tombstone(content: &Content) -> bool {
    content.deleted == Some(true)
}

/// Bytes that a terminal can take.
fn text(bytes: Option<&[u8]>) -> String {
    let text = String::from_utf8_lossy(bytes.unwrap_or_default());
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn last_modified(content: &Content) -> String {
    content.last_mod.map_or(String::new(), utc)
}

/// A time in UTC.
fn utc(seconds: u32) -> String {
    let time = UtcDateTime::from_unix_timestamp(seconds.into()).expect("its seconds end in 2106");
    let (hour, minute, second) = time.as_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", time.date())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_294_967_295, "2106-02-07 06:28:15 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(text(Some(b"a\x1b[2Jb\xff")), "a\\u{1b}[2Jb\u{fffd}");
    }
}
