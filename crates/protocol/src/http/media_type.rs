//! `Content-Type`: a media type, and a character set that is stored apart from it.
//!
//! 1. Reading takes the last `charset` parameter out; everything else stays with the type, in its order.
//! 2. Writing appends it behind the type.
//! 3. A type that holds a `charset` of its own and has none apart gets an empty parameter, a `;` at its end, which HTTP
//!    allows: read so, everything before it is the type.
//! 4. A value whose type has an unended quote beside a `charset` stays whole: no header could hold the two parts.
//!
//! Invariants: a written value reads back unchanged, unless [`write()`] refuses it. [`write()`] refuses no value that
//! [`read()`] has returned.

use bytes::Bytes;

use super::escape::{Part, escape, unescape};

/// A header's value in two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    /// The type, with all other parameters.
    pub media_type: Bytes,
    /// The character set.
    pub charset: Option<Bytes>,
}

/// Reads a header's value.
pub fn read(value: &Bytes) -> ContentType {
    let parts = split(value);
    if parts.charset.is_none() || !parts.media_type.contains(&b'"') {
        return parts;
    }

    // Only a quote without its end changes where parameters begin once the character set stands last.
    let mut joined = Vec::with_capacity(value.len());
    join(&parts.media_type, parts.charset.as_deref(), &mut joined);
    match split(&Bytes::from(joined)) == parts {
        true => parts,
        false => ContentType { media_type: plain(value.clone()), charset: None },
    }
}

/// A header's value in two, whether or not a header can hold them.
fn split(value: &Bytes) -> ContentType {
    if let Some(whole) = value.strip_suffix(b";") {
        return ContentType { media_type: plain(value.slice_ref(whole)), charset: None };
    }
    let mut found = None;
    let mut start = param_start(value, 0);
    while let Some(at) = start {
        let end = param_start(value, at + 1);
        let param = &value[at + 1..end.unwrap_or(value.len())];
        if let Some(charset) = charset_of(param) {
            found = Some((at, end, charset));
        }
        start = end;
    }
    let Some((at, end, charset)) = found else {
        return ContentType { media_type: plain(value.clone()), charset: None };
    };
    let charset = Some(plain(unquoted(value, charset)));
    let front = value[..at].trim_ascii_end();
    let media_type = match end {
        None => value.slice_ref(front),
        Some(end) => Bytes::from([front, &value[end..]].concat()),
    };
    ContentType { media_type: plain(media_type), charset }
}

fn plain(text: Bytes) -> Bytes {
    unescape(&text, Part::Value).unwrap_or(text)
}

/// Whether a header can hold both so that they read back.
pub fn can_hold(media_type: Option<&[u8]>, charset: Option<&[u8]>) -> bool {
    let Some(media_type) = media_type.filter(|it| it.contains(&b'"')) else { return true };
    write(media_type, charset, &mut Vec::new())
}

/// Appends a header's value. False, and nothing is appended, if it cannot be written so that it reads back.
#[must_use]
pub fn write(media_type: &[u8], charset: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    join(media_type, charset, out);
    let is_plain = match charset {
        None => !media_type.contains(&b';'),
        Some(charset) => is_token(charset) && !media_type.contains(&b'"'),
    };
    if is_plain {
        return true;
    }

    let reads_back = |out: &[u8]| {
        let read = read(&Bytes::copy_from_slice(out));
        read.media_type == media_type && read.charset.as_deref() == charset
    };
    if !reads_back(&out[start..]) && charset.is_none() {
        out.push(b';');
    }
    let is_exact = reads_back(&out[start..]);
    if !is_exact {
        out.truncate(start);
    }
    is_exact
}

/// Appends both, whether or not they read back.
fn join(media_type: &[u8], charset: Option<&[u8]>, out: &mut Vec<u8>) {
    escape(media_type, Part::Value, out);
    if let Some(charset) = charset {
        out.extend_from_slice(b"; charset=");
        put_charset(charset, out);
    }
}

fn put_charset(charset: &[u8], out: &mut Vec<u8>) {
    if is_token(charset) {
        return out.extend_from_slice(charset);
    }
    out.push(b'"');
    let mut quoted = Vec::with_capacity(charset.len());
    for &byte in charset {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    escape(&quoted, Part::Value, out);
    out.push(b'"');
}

fn is_token(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_plain)
}

/// Where the next `;` stands that begins a parameter, from `from` on: none within quotes.
fn param_start(value: &[u8], from: usize) -> Option<usize> {
    let mut is_quoted = false;
    let mut bytes = value.iter().enumerate().skip(from);
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => {
                bytes.next();
            }
            b';' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The character set that a parameter names, as it stands there.
fn charset_of(param: &[u8]) -> Option<&[u8]> {
    let at = param.iter().position(|&byte| byte == b'=')?;
    let is_charset = param[..at].trim_ascii().eq_ignore_ascii_case(b"charset");
    is_charset.then(|| param[at + 1..].trim_ascii())
}

fn unquoted(value: &Bytes, charset: &[u8]) -> Bytes {
    let quoted = match charset {
        [b'"', quoted @ .., b'"'] => quoted,
        plain => return value.slice_ref(plain),
    };
    if !quoted.contains(&b'\\') {
        return value.slice_ref(quoted);
    }
    let mut text = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        text.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn of(value: &'static str) -> (String, Option<String>) {
        let read = read(&Bytes::from(value));
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        (text(read.media_type), read.charset.map(text))
    }

    #[test]
    fn the_character_set_is_found_wherever_it_stands() {
        for (value, media_type, charset) in [
            ("text/plain", "text/plain", None),
            ("text/plain; charset=utf-8", "text/plain", Some("utf-8")),
            (
                "multipart/form-data; charset=utf-8; boundary=XX",
                "multipart/form-data; boundary=XX",
                Some("utf-8"),
            ),
            (
                "multipart/form-data; boundary=XX; charset=utf-8",
                "multipart/form-data; boundary=XX",
                Some("utf-8"),
            ),
            ("a/b;x=1;CharSet = \"UTF-8\" ;y=2", "a/b;x=1;y=2", Some("UTF-8")),
            ("a/b; x=\"; charset=no\"", "a/b; x=\"; charset=no\"", None),
            ("a/b; x=\"\\\"; charset=no\"; charset=yes", "a/b; x=\"\\\"; charset=no\"", Some("yes")),
            ("a/b; charset=one; charset=two", "a/b; charset=one", Some("two")),
            ("a/b; charset=\"\"", "a/b", Some("")),
            ("a/b; charset=", "a/b", Some("")),
            ("a/b; charset", "a/b; charset", None),
            ("a/b; charset=utf-8;", "a/b; charset=utf-8", None),
            ("a/b; mycharset=x", "a/b; mycharset=x", None),
            ("a/b; charset=x;\"", "a/b; charset=x;\"", None),
            ("a/b; charset=x; y=\"z\"", "a/b; y=\"z\"", Some("x")),
        ] {
            assert_eq!(of(value), (media_type.to_owned(), charset.map(str::to_owned)), "{value}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut rng = SplitMix64::new(16);
        let words: [&[u8]; 16] = [
            b"a/b",
            b";",
            b" ",
            b"charset",
            b"=",
            b"\"",
            b"\\",
            b"utf-8",
            b"x",
            b",",
            b"%3B",
            b"%0A",
            b"\n",
            b"\xFF",
            b"; charset=y",
            b"boundary=XX",
        ];
        let mut text = |len: u64| {
            let len = rng.below(len);
            (0..len)
                .flat_map(|_| words[usize::try_from(rng.below(16)).unwrap()].to_vec())
                .collect::<Vec<u8>>()
        };
        let mut refused = 0;
        for round in 0..50_000 {
            let media_type = [&b"t/s"[..], &text(6)].concat();
            let charset = (round % 3 > 0).then(|| text(4));
            let mut out = Vec::new();
            if !write(&media_type, charset.as_deref(), &mut out) {
                refused += 1;
                assert!(
                    media_type.contains(&b'"') && charset.is_some(),
                    "only quotes that do not end: {media_type:?}"
                );
                continue;
            }
            assert!(!out.iter().any(u8::is_ascii_control), "{out:?}");
            let read = read(&Bytes::from(out.trim_ascii().to_vec()));
            assert_eq!(
                (&read.media_type[..], read.charset.as_deref()),
                (&media_type[..], charset.as_deref())
            );
        }
        assert!(refused < 20_000, "{refused}");
    }

    #[test]
    fn every_value_that_is_read_can_be_written() {
        let mut rng = SplitMix64::new(17);
        let words: [&[u8]; 12] = [
            b"a/b",
            b";",
            b" ",
            b"; charset=",
            b"=",
            b"\"",
            b"\\",
            b"x",
            b"%3B",
            b"%0A",
            b"\xFF",
            b"; y=\"z\"",
        ];
        for _ in 0..50_000 {
            let len = rng.below(8);
            let words = (0..len).map(|_| words[usize::try_from(rng.below(12)).unwrap()]);
            let value = [&b"t/s"[..], &words.collect::<Vec<_>>().concat()].concat();
            let parts = read(&Bytes::from(value.trim_ascii().to_vec()));
            let mut out = Vec::new();
            assert!(write(&parts.media_type, parts.charset.as_deref(), &mut out), "{value:?}: {parts:?}");
            assert_eq!(read(&Bytes::from(out)), parts, "{value:?}");
        }
    }
}
