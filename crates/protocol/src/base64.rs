//! Base64 with padding (RFC 4648): how contexts are written where bytes cannot be.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// No digit.
const NONE: u8 = 0xFF;

const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < DIGITS.len() {
        values[DIGITS[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// The text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    put(bytes, &mut text);
    String::from_utf8(text).expect("the digits are ASCII")
}

/// Appends the text of `bytes`.
pub fn put(bytes: &[u8], text: &mut Vec<u8>) {
    text.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { DIGITS[index as usize] } else { b'=' });
        }
    }
}

/// The bytes of `text`; `None` if it is not what [`encode`] writes for any.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut groups = text.chunks_exact(4);
    while let Some(group) = groups.next() {
        let is_last = groups.len() == 0;
        let padding = match group {
            [_, _, b'=', b'='] if is_last => 2,
            [_, _, _, b'='] if is_last => 1,
            _ => 0,
        };
        let digits = &group[..4 - padding];
        let mut bits = 0u32;
        for digit in digits {
            let value = VALUES[usize::from(*digit)];
            if value == NONE {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * padding;
        // Bits that no byte takes must be zero, or two texts would have the same bytes.
        if bits & ((1 << (8 * padding)) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    groups.remainder().is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    #[test]
    fn the_published_examples() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xFB, 0xFF, 0xFE]), "+//+");
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "=", "====", "Zm9v\n", "Zm-v", "é", "Zm9vZ==="] {
            assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn random_bytes_come_back_and_random_text_does_no_harm() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            let mut text = encode(&bytes).into_bytes();
            assert_eq!(decode(&text), Some(bytes));
            for _ in 0..rng.below(3) {
                let at = rng.below(text.len() as u64 + 1) as usize;
                text.insert(at, b"=A+ "[rng.below(4) as usize]);
            }
            assert!(decode(&text).is_none_or(|bytes| encode(&bytes).as_bytes() == text));
        }
    }
}
