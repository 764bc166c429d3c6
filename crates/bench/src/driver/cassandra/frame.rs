//! Frames of Cassandra's native protocol, version 4: their contents, and the pieces of requests.
//!
//! A frame is a header of nine bytes (version, flags, stream, opcode, length) and a body. Lengths are the server's
//! word: each is compared with what is there, and nothing is reserved for it.

use std::ops::Range;

/// Version, flags, stream, opcode, length.
pub const HEADER_LEN: usize = 9;

/// The protocol's own bound.
const BODY_MAX: usize = 256 << 20;

const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;

/// Of an answer's flags: warnings stand before the rest. What the others mean was not asked for.
const HAS_WARNINGS: u8 = 0x08;

/// Of rows: the columns of all are of one table, more pages follow, nothing is said of columns.
const GLOBAL_TABLE: u32 = 1;
const HAS_MORE_PAGES: u32 = 2;
const NO_METADATA: u32 = 4;

/// Columns of a result at most; here it is one.
const COLUMNS_MAX: u32 = 64;

/// What frames are for.
#[allow(missing_docs, reason = "they are the protocol's words")]
pub mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const STARTUP: u8 = 0x01;
    pub const READY: u8 = 0x02;
    pub const AUTHENTICATE: u8 = 0x03;
    pub const OPTIONS: u8 = 0x05;
    pub const SUPPORTED: u8 = 0x06;
    pub const QUERY: u8 = 0x07;
    pub const RESULT: u8 = 0x08;
    pub const PREPARE: u8 = 0x09;
    pub const EXECUTE: u8 = 0x0A;
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// It went wrong.
    Error {
        /// The protocol's number of it.
        code: u32,
        /// In words.
        text: &'a str,
    },
    /// Requests are taken.
    Ready,
    /// A password is asked for.
    Authenticate,
    /// What the server can do.
    Supported,
    /// Done; also where a keyspace was set or a schema changed.
    Done,
    /// Rows: where the first column of the first is in the frame; `None` of no row, and in it of no value.
    Rows(Option<Option<Range<usize>>>),
    /// A statement is known as this.
    Prepared(&'a [u8]),
}

/// The length of the frame at the front of `input`, once its header is there.
pub fn frame_len(input: &[u8]) -> Result<Option<usize>, &'static str> {
    if input.first().is_some_and(|version| *version != RESPONSE) {
        return Err("an answer of another version of the protocol than 4");
    }
    let Some(header) = input.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    match u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize {
        len if len <= BODY_MAX => Ok(Some(HEADER_LEN + len)),
        _ => Err("an answer of more than 256 MiB"),
    }
}

/// The stream of a whole frame; one that no request has if the server speaks unasked.
pub fn stream(frame: &[u8]) -> u16 {
    frame.get(2..4).map_or(u16::MAX, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Reads a whole frame; `None` if it makes no sense.
pub fn parse(frame: &[u8]) -> Option<Message<'_>> {
    if frame_len(frame).ok()?? != frame.len() {
        return None;
    }
    let (flags, code) = (frame[1], frame[4]);
    let mut it = Reader { frame, at: HEADER_LEN };
    match flags {
        0 => {}
        HAS_WARNINGS => {
            for _ in 0..it.short()? {
                let len = it.short()?;
                it.bytes(len.into())?;
            }
        }
        _ => return None,
    }
    Some(match code {
        opcode::ERROR => {
            let code = it.int()?;
            Message::Error { code, text: it.text()? }
        }
        opcode::READY => Message::Ready,
        opcode::AUTHENTICATE => Message::Authenticate,
        opcode::SUPPORTED => Message::Supported,
        opcode::RESULT => match it.int()? {
            // Nothing, a keyspace, a change of the schema.
            1 | 3 | 5 => Message::Done,
            2 => Message::Rows(it.first_row()?),
            4 => {
                let len = it.short()?;
                Message::Prepared(&frame[it.bytes(len.into())?])
            }
            _ => return None,
        },
        _ => return None,
    })
}

struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<Range<usize>> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.frame.len())?;
        let begin = std::mem::replace(&mut self.at, end);
        Some(begin..end)
    }

    fn short(&mut self) -> Option<u16> {
        let at = self.bytes(2)?;
        Some(u16::from_be_bytes([self.frame[at.start], self.frame[at.start + 1]]))
    }

    fn int(&mut self) -> Option<u32> {
        let at = self.bytes(4)?;
        self.frame[at].try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.short()?;
        let at = self.bytes(len.into())?;
        std::str::from_utf8(&self.frame[at]).ok()
    }

    /// A value; `None` in it where there is none.
    fn value(&mut self) -> Option<Option<Range<usize>>> {
        match i32::from_be_bytes(self.int()?.to_be_bytes()) {
            -1 => Some(None),
            len => self.bytes(usize::try_from(len).ok()?).map(Some),
        }
    }

    fn first_row(&mut self) -> Option<Option<Option<Range<usize>>>> {
        let (flags, columns) = (self.int()?, self.int()?);
        if flags > 7 || !(1..=COLUMNS_MAX).contains(&columns) {
            return None;
        }
        if flags & HAS_MORE_PAGES != 0 {
            self.value()?;
        }
        if flags & NO_METADATA == 0 {
            self.skip_columns(flags, columns)?;
        }
        if self.int()? == 0 {
            return Some(None);
        }
        self.value().map(Some)
    }

    fn skip_columns(&mut self, flags: u32, columns: u32) -> Option<()> {
        // Keyspace and table, once or for each column.
        if flags & GLOBAL_TABLE != 0 {
            self.text()?;
            self.text()?;
        }
        for _ in 0..columns {
            if flags & GLOBAL_TABLE == 0 {
                self.text()?;
                self.text()?;
            }
            self.text()?;
            // Types that say more than a number are no columns of our table.
            let kind = self.short()?;
            if kind == 0 || kind >= 0x20 {
                return None;
            }
        }
        Some(())
    }
}

/// Appends a request whose body `put` appends.
pub fn put_request(out: &mut Vec<u8>, stream: u16, code: u8, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[REQUEST, 0]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&[code, 0, 0, 0, 0]);
    put(out);
    let len = u32::try_from(out.len() - start - HEADER_LEN).expect("values are bounded far below 4 GiB");
    out[start + 5..start + HEADER_LEN].copy_from_slice(&len.to_be_bytes());
}

/// Appends bytes that have a length of two bytes.
pub fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("what is sent so is far shorter");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends bytes that have a length of four bytes.
pub fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("values are bounded far below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer of a server.
    fn answer(flags: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&[RESPONSE, flags, 0, 7, code][..], &len, body].concat()
    }

    #[test]
    fn answers_are_read() {
        let rows = |flags: u8, columns: &[u8], rest: &[u8]| {
            let head = [&[0, 0, 0, 2, 0, 0, 0, flags, 0, 0, 0, 1][..], columns, rest].concat();
            answer(0, opcode::RESULT, &head)
        };
        let one = b"\0\0\0\x01\0\0\0\x02ab";
        let columns = b"\0\x01k\0\x01t\0\x01v\0\x03";
        let cases = [
            (answer(0, opcode::READY, b""), Message::Ready),
            (answer(0, opcode::ERROR, b"\0\0\x10\x01\0\x02no"), Message::Error { code: 0x1001, text: "no" }),
            (answer(0, opcode::RESULT, b"\0\0\0\x01"), Message::Done),
            // A warning of one byte before it.
            (answer(8, opcode::RESULT, b"\0\x01\0\x01w\0\0\0\x01"), Message::Done),
            (answer(0, opcode::RESULT, b"\0\0\0\x04\0\x02id"), Message::Prepared(b"id")),
            (rows(4, b"", b"\0\0\0\0"), Message::Rows(None)),
            (rows(4, b"", b"\0\0\0\x01\xff\xff\xff\xff"), Message::Rows(Some(None))),
            (rows(4, b"", one), Message::Rows(Some(Some(29..31)))),
            (rows(1, columns, one), Message::Rows(Some(Some(40..42)))),
            (rows(0, columns, one), Message::Rows(Some(Some(40..42)))),
            (rows(6, b"\0\0\0\x01p", one), Message::Rows(Some(Some(34..36)))),
        ];
        for (frame, expected) in cases {
            assert_eq!(frame_len(&frame), Ok(Some(frame.len())));
            assert_eq!((parse(&frame), stream(&frame)), (Some(expected), 7));
            for cut in 0..frame.len() {
                assert_eq!(parse(&frame[..cut]), None);
                assert!(frame_len(&frame[..cut]).unwrap().is_none_or(|len| len == frame.len()));
            }
        }
    }

    #[test]
    fn what_cannot_be_believed_is_refused() {
        frame_len(b"\x85").unwrap_err();
        frame_len(&[RESPONSE, 0, 0, 0, 0, 0x10, 0, 0, 1]).unwrap_err();
        for (flags, code, body) in [
            (1, opcode::RESULT, &b"\0\0\0\x01"[..]),
            (0, opcode::RESULT, b"\0\0\0\x09"),
            (0, opcode::QUERY, b""),
            // A row that says that it is longer than it is, a length below zero, a column whose type is a list.
            (0, opcode::RESULT, b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xffab"),
            (0, opcode::RESULT, b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01\xff\xff\xff\xfeab"),
            (0, opcode::RESULT, b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x01k\0\x01t\0\x01v\0\x20\0\0\0\0"),
            (0, opcode::RESULT, b"\0\0\0\x02\0\0\0\x04\x7f\xff\xff\xff\0\0\0\0"),
        ] {
            assert_eq!(parse(&answer(flags, code, body)), None, "{body:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn any_answer_is_read_or_refused(
            flags in prop::sample::select(vec![0u8, 8, 1]),
            code in prop::sample::select(vec![0u8, 2, 6, 8, 8, 8]),
            words in prop::collection::vec(prop_oneof![0u32..8, any::<u32>()], 0..8),
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            body.extend_from_slice(&rest);
            let frame = answer(flags, code, &body);
            if let Some(Message::Rows(Some(Some(at)))) = parse(&frame) {
                prop_assert!(at.start <= at.end && at.end <= frame.len());
            }
        }

        #[test]
        fn any_noise_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(parse(&bytes).is_none() || frame_len(&bytes) == Ok(Some(bytes.len())));
        }
    }
}
