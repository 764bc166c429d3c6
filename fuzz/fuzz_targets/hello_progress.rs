//! A client's hello of TLS in pieces: whole with the same byte as in one piece, and once whole always whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::HelloProgress;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, piece) = input;
    let mut progress = HelloProgress::default();
    let (mut end, mut was_whole) = (0, false);
    for piece in bytes.chunks(usize::from(piece).max(1)) {
        end += piece.len();
        let is_whole = progress.is_whole_with(piece);
        assert_eq!(is_whole, HelloProgress::default().is_whole_with(&bytes[..end]));
        assert!(is_whole || !was_whole);
        was_whole = is_whole;
    }
});
