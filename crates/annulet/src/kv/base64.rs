//! Base64 with padding (RFC 4648): how contexts are shown, and taken back.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

/// The bytes of `text`; `None` if it is not what [`encode`] writes for any.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        // Padding counts as zeros here; that it stands in the right place is seen at the end.
        let mut bits = 0u32;
        for digit in group {
            let value = DIGITS.iter().position(|other| other == digit).or((*digit == b'=').then_some(0))?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        let padding = group.iter().filter(|&&digit| digit == b'=').count();
        bytes.extend_from_slice(bits.to_be_bytes()[1..].get(..3usize.checked_sub(padding)?)?);
    }
    (encode(&bytes) == text).then_some(bytes)
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
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xFB, 0xFF, 0xFE]), "+//+");
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "=", "====", "Zm9v\n", "Zm-v", "é", "Zm9vZ==="] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn random_bytes_come_back_and_random_text_does_no_harm() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            let mut text = encode(&bytes).into_bytes();
            assert_eq!(decode(std::str::from_utf8(&text).unwrap()), Some(bytes));
            for _ in 0..rng.below(3) {
                let at = rng.below(text.len() as u64 + 1) as usize;
                text.insert(at, b"=A+ "[rng.below(4) as usize]);
            }
            let text = String::from_utf8(text).unwrap();
            assert!(decode(&text).is_none_or(|bytes| encode(&bytes) == text));
        }
    }
}
