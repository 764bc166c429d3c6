//! A request's target: a path in segments, and a query.
//!
//! As in Riak a `+` is a space in both: its clients write names so. Nothing is normalised: a segment may decode to
//! anything, `..` and `/` included.

use bytes::Bytes;

use super::refused::Refused;

/// The most parameters of a query: all there are, several times over.
pub const PARAMS_MAX: usize = 64;

/// The path and the query of a target.
pub fn split(target: &Bytes) -> (Bytes, Bytes) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (target.slice(..at), target.slice(at + 1..)),
        None => (target.clone(), Bytes::new()),
    }
}

/// The segments of a path, not decoded. The path begins with a slash.
pub fn segments(path: &Bytes) -> impl Iterator<Item = Bytes> {
    path[1..].split(|&byte| byte == b'/').map(|segment| path.slice_ref(segment))
}

/// A query's parameters, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(Bytes, Bytes)>);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// If its encoding is malformed, or it has more than [`PARAMS_MAX`] parameters.
    pub fn parse(query: &Bytes) -> Result<Query, Refused> {
        if query.is_empty() {
            return Ok(Query::default());
        }
        let mut params = Vec::new();
        for param in query.split(|&byte| byte == b'&').filter(|param| !param.is_empty()) {
            if params.len() == PARAMS_MAX {
                return Err(Refused::new(400, format!("more than {PARAMS_MAX} query parameters")));
            }
            let (name, value) = match param.iter().position(|&byte| byte == b'=') {
                Some(at) => (&param[..at], &param[at + 1..]),
                None => (param, &param[..0]),
            };
            params.push((decode(&query.slice_ref(name))?, decode(&query.slice_ref(value))?));
        }
        Ok(Query(params))
    }

    /// The value of a parameter; the first if it is there twice, as in Riak.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(other, _)| other == name.as_bytes()).map(|(_, value)| value)
    }
}

/// The decoded text of a segment or a parameter.
///
/// # Errors
/// If a `%` is not followed by two hexadecimal digits.
pub fn decode(text: &Bytes) -> Result<Bytes, Refused> {
    let bare = || Refused::bad("a % in the target is not followed by two hexadecimal digits");
    decode_or(text, || Err(bare()))
}

/// The decoded text of a part of a `Link` header: a `%` that is not followed by two hexadecimal digits stands for
/// itself, as in Riak.
pub fn decode_lenient(text: &Bytes) -> Bytes {
    decode_or(text, || Ok::<_, std::convert::Infallible>(b'%')).unwrap_or_else(|never| match never {})
}

/// Decodes a text. `bare` gives the byte that a `%` without its digits stands for, or the error.
fn decode_or<E>(text: &Bytes, bare: impl Fn() -> Result<u8, E>) -> Result<Bytes, E> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(text.clone());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digit = |at: usize| after.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(0), digit(1)) {
                (Some(high), Some(low)) => {
                    rest = &after[2..];
                    u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte")
                }
                _ => bare()?,
            },
            byte => byte,
        });
    }
    Ok(Bytes::from(decoded))
}

/// Appends a name so that it is one segment: everything but letters, digits and `-._~` as `%XX`.
pub fn encode(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            percent(byte, out);
        }
    }
}

/// Appends `%XX`.
pub(super) fn percent(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}
