//! Bytes as each message, answers included: refused, or read the same again after it is written.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::Message;
use protocol::messages::*;

fn round_trip<M: Message + Default + PartialEq>(body: &Bytes) {
    if let Ok(message) = M::decode(body.clone()) {
        let again = M::decode(Bytes::from(message.encode_to_vec())).expect("our own bytes");
        assert!(again == message);
    }
}

fuzz_target!(|body: &[u8]| {
    let body = Bytes::copy_from_slice(body);
    round_trip::<ErrorResp>(&body);
    round_trip::<GetClientIdResp>(&body);
    round_trip::<SetClientIdReq>(&body);
    round_trip::<GetServerInfoResp>(&body);
    round_trip::<GetReq>(&body);
    round_trip::<GetResp>(&body);
    round_trip::<PutReq>(&body);
    round_trip::<PutResp>(&body);
    round_trip::<DelReq>(&body);
    round_trip::<ListBucketsReq>(&body);
    round_trip::<ListBucketsResp>(&body);
    round_trip::<ListKeysReq>(&body);
    round_trip::<ListKeysResp>(&body);
    round_trip::<GetBucketReq>(&body);
    round_trip::<GetBucketResp>(&body);
    round_trip::<SetBucketReq>(&body);
    round_trip::<ResetBucketReq>(&body);
    round_trip::<GetBucketTypeReq>(&body);
    round_trip::<SetBucketTypeReq>(&body);
    round_trip::<GetPreflistReq>(&body);
    round_trip::<GetPreflistResp>(&body);
});
