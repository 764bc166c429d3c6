//! Values of HTTP headers: links, media types, escapes and hosts. Written values read back.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use node::http::HostName;
use protocol::http::escape::{Part, escape, unescape};
use protocol::http::{link, media_type};

fuzz_target!(|input: (&[u8], &[u8], bool)| {
    let (text, other, is_apart) = input;
    let _ = link::parse(text, other);

    let read = media_type::read(&Bytes::copy_from_slice(text));
    assert_reads_back(&read.media_type, read.charset.as_deref());
    assert_reads_back(text, is_apart.then_some(other));

    for part in [Part::Name, Part::Value, Part::Item] {
        let mut escaped = Vec::new();
        escape(text, part, &mut escaped);
        let plain = unescape(&escaped, part).unwrap_or_else(|| Bytes::from(escaped.clone()));
        assert_eq!(plain, text);
    }

    if let Some(host) = HostName::read(text) {
        assert_eq!(HostName::read(host.to_string().as_bytes()), Some(host));
    }
});

/// A media type that can be written is read as it was.
fn assert_reads_back(media_type: &[u8], charset: Option<&[u8]>) {
    let mut value = Vec::new();
    if media_type::write(media_type, charset, &mut value) {
        let read = media_type::read(&Bytes::from(value));
        assert_eq!((&read.media_type[..], read.charset.as_deref()), (media_type, charset));
    }
}
