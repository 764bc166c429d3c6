//! Redis's serialization protocol, version 2: the end and the contents of an answer.
//!
//! Lengths are the server's word: each is compared with a bound before it is believed, and nothing is reserved for it.

/// No line is longer: of an error, or of a length.
const LINE_MAX: usize = 64 << 10;

/// No value is longer: Redis's own bound.
const BULK_MAX: usize = 512 << 20;

/// No array has more elements, of those that are asked for here.
const ELEMENTS_MAX: usize = 1 << 20;

/// Arrays in arrays: a map of slots has four.
const DEPTH_MAX: usize = 8;

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A word of success.
    Simple(&'a [u8]),
    /// What went wrong.
    Error(&'a [u8]),
    /// A number.
    Integer(i64),
    /// Bytes, or nothing.
    Bulk(Option<&'a [u8]>),
    /// Values, or nothing.
    Array(Option<Vec<Value<'a>>>),
}

impl<'a> Value<'a> {
    /// The elements of an array.
    pub fn elements(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::Array(elements) => elements.as_deref(),
            _ => None,
        }
    }

    /// A number that is none below zero.
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Bytes or a word, as text.
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Value::Simple(bytes) | Value::Bulk(Some(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// The length of the answer at the front of `input`; of one that is not whole, what is known to be needed, or nothing.
pub fn frame_len(input: &[u8]) -> Result<Option<usize>, &'static str> {
    len_at(input, 0)
}

fn len_at(input: &[u8], depth: usize) -> Result<Option<usize>, &'static str> {
    let Some((kind, line, mut at)) = line(input)? else { return Ok(None) };
    match kind {
        b'+' | b'-' => Ok(Some(at)),
        b':' => integer(line).map(|_| Some(at)),
        b'$' => Ok(Some(length(line, BULK_MAX)?.map_or(at, |len| at + len + 2))),
        b'*' if depth < DEPTH_MAX => {
            for _ in 0..length(line, ELEMENTS_MAX)?.unwrap_or(0) {
                match len_at(input.get(at..).unwrap_or_default(), depth + 1)? {
                    Some(len) => at += len,
                    None => return Ok(None),
                }
            }
            Ok(Some(at))
        }
        b'*' => Err("arrays too deep in arrays"),
        _ => Err("an answer of no kind"),
    }
}

/// Reads a whole answer.
pub fn parse(frame: &[u8]) -> Result<Value<'_>, &'static str> {
    match value(frame, 0)? {
        (value, len) if len == frame.len() => Ok(value),
        _ => Err("bytes behind an answer"),
    }
}

fn value(input: &[u8], depth: usize) -> Result<(Value<'_>, usize), &'static str> {
    let cut = "an answer that is cut off";
    let (kind, line, at) = line(input)?.ok_or(cut)?;
    match kind {
        b'+' => Ok((Value::Simple(line), at)),
        b'-' => Ok((Value::Error(line), at)),
        b':' => Ok((Value::Integer(integer(line)?), at)),
        b'$' => match length(line, BULK_MAX)? {
            None => Ok((Value::Bulk(None), at)),
            Some(len) => {
                let bytes = input.get(at..at + len).ok_or(cut)?;
                match input.get(at + len..at + len + 2).ok_or(cut)? {
                    b"\r\n" => Ok((Value::Bulk(Some(bytes)), at + len + 2)),
                    _ => Err("a value of another length than it said"),
                }
            }
        },
        b'*' if depth < DEPTH_MAX => {
            let Some(count) = length(line, ELEMENTS_MAX)? else { return Ok((Value::Array(None), at)) };
            let (mut elements, mut end) = (Vec::new(), at);
            for _ in 0..count {
                let (element, len) = value(input.get(end..).ok_or(cut)?, depth + 1)?;
                elements.push(element);
                end += len;
            }
            Ok((Value::Array(Some(elements)), end))
        }
        b'*' => Err("arrays too deep in arrays"),
        _ => Err("an answer of no kind"),
    }
}

/// A line: its kind, what follows that, and its length with the end.
type Line<'a> = (u8, &'a [u8], usize);

/// The first line, if it is whole.
fn line(input: &[u8]) -> Result<Option<Line<'_>>, &'static str> {
    let within = &input[..input.len().min(LINE_MAX)];
    match within.iter().position(|&byte| byte == b'\r') {
        Some(0) => Err("an answer of no kind"),
        Some(end) => match input.get(end + 1) {
            Some(b'\n') => Ok(Some((input[0], &input[1..end], end + 2))),
            Some(_) => Err("a line that does not end as one"),
            None => Ok(None),
        },
        None if within.len() == LINE_MAX => Err("an endless line"),
        None => Ok(None),
    }
}

fn integer(line: &[u8]) -> Result<i64, &'static str> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or("a number that is none")
}

/// A length, or nothing, which is told as -1.
fn length(line: &[u8], max: usize) -> Result<Option<usize>, &'static str> {
    match integer(line)? {
        -1 => Ok(None),
        len => match usize::try_from(len) {
            Ok(len) if len <= max => Ok(Some(len)),
            _ => Err("a length beyond all bounds"),
        },
    }
}

/// Appends a request: an array of bytes.
pub fn put_request(out: &mut Vec<u8>, parts: &[&[&[u8]]]) {
    put_length(out, b'*', parts.len());
    for pieces in parts {
        put_length(out, b'$', pieces.iter().map(|piece| piece.len()).sum());
        for piece in *pieces {
            out.extend_from_slice(piece);
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn put_length(out: &mut Vec<u8>, kind: u8, mut len: usize) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (len % 10) as u8;
        len /= 10;
        if len == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read() {
        for (bytes, expected) in [
            (&b"+OK\r\n"[..], Value::Simple(b"OK")),
            (b"-ERR no\r\n", Value::Error(b"ERR no")),
            (b":-7\r\n", Value::Integer(-7)),
            (b"$-1\r\n", Value::Bulk(None)),
            (b"$0\r\n\r\n", Value::Bulk(Some(b""))),
            (b"$4\r\n\r\n\r\n\r\n", Value::Bulk(Some(b"\r\n\r\n"))),
            (b"*-1\r\n", Value::Array(None)),
            (b"*0\r\n", Value::Array(Some(Vec::new()))),
            (
                b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
                Value::Array(Some(vec![
                    Value::Integer(1),
                    Value::Array(Some(vec![Value::Bulk(Some(b"a"))])),
                ])),
            ),
        ] {
            assert_eq!(frame_len(bytes), Ok(Some(bytes.len())));
            assert_eq!(parse(bytes), Ok(expected));
            for cut in 0..bytes.len() {
                // Of a value its length is known before it is there.
                let len = frame_len(&bytes[..cut]).unwrap();
                assert!(len.is_none_or(|len| len > cut), "{bytes:?} {cut}");
                parse(&bytes[..cut]).unwrap_err();
            }
        }
    }

    #[test]
    fn what_cannot_be_believed_is_refused() {
        let deep = [&b"*1\r\n".repeat(9)[..], b":1\r\n"].concat();
        for bytes in [
            &b"\r\n"[..],
            b"?1\r\n",
            b":x\r\n",
            b"+a\rb\r\n",
            b"$-2\r\n",
            b"$536870913\r\n",
            b"*1048577\r\n",
            b"$99999999999999999999\r\n",
            &deep,
            &[b'+'; LINE_MAX],
        ] {
            frame_len(bytes).unwrap_err();
        }
        assert_eq!(parse(b"$1\r\nab\r\n"), Err("a value of another length than it said"));
        assert_eq!(parse(b"+OK\r\n+OK\r\n"), Err("bytes behind an answer"));
    }

    #[test]
    fn a_request_is_an_array_of_bytes() {
        let mut out = Vec::new();
        put_request(&mut out, &[&[b"SET"], &[b"bench", b":", b"0007"], &[&[0; 100]]]);
        let expected =
            [&b"*3\r\n$3\r\nSET\r\n$10\r\nbench:0007\r\n$100\r\n"[..], &[0; 100], b"\r\n"].concat();
        assert_eq!(out, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in "[*$:+\\-]?[0-9]{0,3}(\r\n|\r|x|[*$:+\\-]){0,20}[0-9]{0,3}(\r\n)?") {
            let bytes = bytes.as_bytes();
            if let Ok(Some(len)) = frame_len(bytes) {
                if len <= bytes.len() {
                    // A whole frame is read, unless a value does not end where it said.
                    let parsed = parse(&bytes[..len]);
                    prop_assert!(parsed.is_ok() || parsed == Err("a value of another length than it said"));
                }
            } else {
                parse(bytes).unwrap_err();
            }
        }

        #[test]
        fn any_noise_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(parse(&bytes).is_ok(), parse(&bytes).is_ok() && frame_len(&bytes) == Ok(Some(bytes.len())));
        }
    }
}
