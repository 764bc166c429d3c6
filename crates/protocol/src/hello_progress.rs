//! The hello of a client of TLS, as it comes: whether all of it is there, before it is looked at.
//!
//! The first nine bytes are the header of a record and that of the hello (RFC 8446, sections 4 and 5.1). A hello in
//! several records is not followed: TLS tells that it is whole, later.

/// Bytes of the header of a record, and of that of a hello.
const RECORD_HEADER: usize = 5;
const HELLO_HEADER: usize = 4;

/// The kinds of a record and of a message that a hello has.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// The part of a hello that has come.
#[derive(Debug, Default)]
pub struct HelloProgress {
    head: [u8; RECORD_HEADER + HELLO_HEADER],
    bytes: usize,
}

impl HelloProgress {
    /// Takes the next bytes of the client; whether the whole hello has come with them.
    pub fn is_whole_with(&mut self, bytes: &[u8]) -> bool {
        let missing = self.head.len().saturating_sub(self.bytes).min(bytes.len());
        self.head[self.bytes.min(RECORD_HEADER + HELLO_HEADER)..][..missing]
            .copy_from_slice(&bytes[..missing]);
        self.bytes = self.bytes.saturating_add(bytes.len());

        let [kind, _, _, high, low, message, length @ ..] = self.head;
        let record = usize::from(u16::from_be_bytes([high, low]));
        let hello = HELLO_HEADER + u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
        let is_hello = kind == HANDSHAKE && message == CLIENT_HELLO;
        is_hello && self.bytes >= self.head.len() && hello <= record && self.bytes >= RECORD_HEADER + hello
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    /// A hello of so many bytes in a record.
    fn hello(len: u16) -> Vec<u8> {
        let record = (len + HELLO_HEADER as u16).to_be_bytes();
        let head = [HANDSHAKE, 3, 1, record[0], record[1], CLIENT_HELLO, 0, (len >> 8) as u8, len as u8];
        [&head[..], &vec![7; len.into()]].concat()
    }

    #[test]
    fn hello_is_whole_with_its_last_byte() {
        for len in [0, 1, 4, 300, 2_000] {
            let hello = hello(len);
            for piece in [1, 2, 8, 9, 10, 517] {
                let mut progress = HelloProgress::default();
                let pieces: Vec<bool> =
                    hello.chunks(piece).map(|bytes| progress.is_whole_with(bytes)).collect();
                let (last, before) = pieces.split_last().unwrap();
                assert!(*last && !before.contains(&true), "{len} bytes by {piece}");
            }
        }
    }

    #[test]
    fn pieces_decide_nothing() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..5_000 {
            let mut bytes = hello(rng.below(300) as u16);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= rng.below(256) as u8;
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            let whole = HelloProgress::default().is_whole_with(&bytes);
            let (mut progress, mut rest, mut last) = (HelloProgress::default(), &bytes[..], false);
            while !rest.is_empty() {
                let (piece, next) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
                (last, rest) = (progress.is_whole_with(piece), next);
            }
            assert_eq!(last, whole, "{bytes:?}");
        }
    }

    #[test]
    fn other_bytes_are_no_hello() {
        let with = |at: usize, byte: u8| {
            let mut bytes = hello(300);
            bytes[at] = byte;
            HelloProgress::default().is_whole_with(&bytes)
        };
        assert!(!with(0, 23), "another record");
        assert!(!with(5, 2), "another message");
        assert!(!with(3, 0), "a record that ends within the hello");
        assert!(!HelloProgress::default().is_whole_with(&[HANDSHAKE, 3, 1, 0, 1, CLIENT_HELLO]));
    }
}
