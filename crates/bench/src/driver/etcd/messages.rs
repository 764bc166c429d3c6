//! Messages of etcd's v3 API, with the fields that are used here, and how gRPC frames them.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// A flag, which says that nothing is compressed, and a length.
pub const PREFIX_LEN: usize = 5;

/// What reads a key.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Whether the value is left out.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

/// What it is answered with.
#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    /// The key, if it is there.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
}

/// A key that is there.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

/// What writes a key.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Its value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// What deletes a key.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

/// A message as gRPC sends it.
pub fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    out.put_u8(0);
    out.put_u32(u32::try_from(len).expect("values are bounded far below 4 GiB"));
    message.encode(&mut out).expect("there is room for all of it");
    out.freeze()
}

/// The one message of an answer; `None` if it is not one whole message that is not compressed.
pub fn unframed(mut body: Bytes) -> Option<Bytes> {
    let prefix = body.first_chunk::<PREFIX_LEN>()?;
    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    (prefix[0] == 0 && body.len() - PREFIX_LEN == len).then(|| body.split_off(PREFIX_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_those_of_the_protocol() {
        let key = Bytes::from_static(b"b/k");
        let range = RangeRequest { key: key.clone(), keys_only: false };
        assert_eq!(&framed(&range)[..], b"\0\0\0\0\x05\x0a\x03b/k");
        let head = RangeRequest { key: key.clone(), keys_only: true };
        assert_eq!(&framed(&head)[..], b"\0\0\0\0\x07\x0a\x03b/k\x40\x01");
        let put = PutRequest { key: key.clone(), value: Bytes::from_static(b"v") };
        assert_eq!(&framed(&put)[..], b"\0\0\0\0\x08\x0a\x03b/k\x12\x01v");
        assert_eq!(&framed(&DeleteRangeRequest { key })[..], b"\0\0\0\0\x05\x0a\x03b/k");
    }

    #[test]
    fn answers_are_read() {
        // A header, one key with a revision and its value, and the count.
        let body = b"\0\0\0\0\x11\x0a\x02\x08\x01\x12\x09\x0a\x01k\x10\x02\x2a\x02vw\x20\x01";
        let range = RangeResponse::decode(unframed(Bytes::from_static(body)).unwrap()).unwrap();
        assert_eq!((range.kvs.len(), &range.kvs[0].value[..]), (1, &b"vw"[..]));
        for wrong in [&body[..4], &body[..20], b"\x01\0\0\0\0", b"\0\0\0\0\x01"] {
            assert_eq!(unframed(Bytes::from_static(wrong)), None);
        }
        assert_eq!(unframed(Bytes::from_static(b"\0\0\0\0\0")), Some(Bytes::new()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let len = bytes.len() as u32;
            let framed = [&[0][..], &len.to_be_bytes(), &bytes].concat();
            prop_assert_eq!(unframed(framed.into()), Some(Bytes::from(bytes.clone())));
            if let Ok(range) = RangeResponse::decode(&bytes[..]) {
                prop_assert!(range.kvs.iter().map(|it| it.value.len()).sum::<usize>() <= bytes.len());
            }
        }
    }
}
