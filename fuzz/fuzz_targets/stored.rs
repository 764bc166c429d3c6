//! Everything that is read from a file and has a checksum or a version in front: records, segment headers and
//! trailers, table blocks, the manifest, bucket properties, hash trees, what a data folder's stores are, the state of
//! the metadata log.
#![no_main]

use bytes::Bytes;
use engine::journal::record;
use engine::journal::segment::{self, SegmentId};
use engine::manifest::ManifestState;
use engine::table::{Block, TableId};
use kv::BucketProps;
use kv::aae;
use kv::props::StampedProps;
use libfuzzer_sys::fuzz_target;
use membership::state::State;
use node::store::founding;

fuzz_target!(|input: (u64, &[u8])| {
    let (place, bytes) = input;
    let segment = SegmentId(place >> 32);
    let _ = record::parse(bytes, segment, place & 0xFFFF_FFF8);
    let _ = segment::parse_header(bytes, segment);
    let _ = segment::parse_trailer(bytes, segment);
    let _ = Block::parse(Bytes::copy_from_slice(bytes), TableId(place), 0).map(|block| block.count());
    let _ = ManifestState::decode(bytes, "MANIFEST");
    if let Some(joined) = aae::join(&[Bytes::copy_from_slice(bytes)]) {
        let _ = aae::join(&[joined]);
    }
    if let Ok((is, metadata)) = founding::decode(bytes) {
        assert_eq!(founding::decode(&founding::encode(&is, &metadata)).ok(), Some((is, metadata)));
    }
    if let Ok(state) = State::decode(Bytes::copy_from_slice(bytes)) {
        let _ = state.first_voters(3, place as u16);
        assert_eq!(State::decode(state.encode()), Ok(state));
    }
    if let Ok(change) = StampedProps::decode(bytes) {
        assert_eq!(StampedProps::decode(&change.encode()).ok(), Some(change));
    }
    if let Ok(props) = BucketProps::decode(bytes) {
        assert_eq!(BucketProps::decode(&props.encode()).ok(), Some(props));
    }
});
