//! Message codes: the byte after the length of a frame.
//!
//! The table holds every message this crate decodes or encodes. A code outside it is answered with
//! "Unknown message code: N", which is also what Riak says for a service that is not loaded.

/// Which way a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client to a node.
    Request,
    /// From a node to a client.
    Response,
}

macro_rules! codes {
    ($($constant:ident = $code:literal, $direction:ident, $name:literal;)*) => {
        $(#[doc = concat!("The code of `", $name, "`.")]
        pub const $constant: u8 = $code;)*

        const TABLE: &[(u8, Direction, &str)] = &[$(($code, Direction::$direction, $name)),*];
    };
}

codes! {
    ERROR_RESP = 0, Response, "RpbErrorResp";
    PING_REQ = 1, Request, "RpbPingReq";
    PING_RESP = 2, Response, "RpbPingResp";
    GET_CLIENT_ID_REQ = 3, Request, "RpbGetClientIdReq";
    GET_CLIENT_ID_RESP = 4, Response, "RpbGetClientIdResp";
    SET_CLIENT_ID_REQ = 5, Request, "RpbSetClientIdReq";
    SET_CLIENT_ID_RESP = 6, Response, "RpbSetClientIdResp";
    GET_SERVER_INFO_REQ = 7, Request, "RpbGetServerInfoReq";
    GET_SERVER_INFO_RESP = 8, Response, "RpbGetServerInfoResp";
    GET_REQ = 9, Request, "RpbGetReq";
    GET_RESP = 10, Response, "RpbGetResp";
    PUT_REQ = 11, Request, "RpbPutReq";
    PUT_RESP = 12, Response, "RpbPutResp";
    DEL_REQ = 13, Request, "RpbDelReq";
    DEL_RESP = 14, Response, "RpbDelResp";
    LIST_BUCKETS_REQ = 15, Request, "RpbListBucketsReq";
    LIST_BUCKETS_RESP = 16, Response, "RpbListBucketsResp";
    LIST_KEYS_REQ = 17, Request, "RpbListKeysReq";
    LIST_KEYS_RESP = 18, Response, "RpbListKeysResp";
    GET_BUCKET_REQ = 19, Request, "RpbGetBucketReq";
    GET_BUCKET_RESP = 20, Response, "RpbGetBucketResp";
    SET_BUCKET_REQ = 21, Request, "RpbSetBucketReq";
    SET_BUCKET_RESP = 22, Response, "RpbSetBucketResp";
    INDEX_REQ = 25, Request, "RpbIndexReq";
    INDEX_RESP = 26, Response, "RpbIndexResp";
    RESET_BUCKET_REQ = 29, Request, "RpbResetBucketReq";
    RESET_BUCKET_RESP = 30, Response, "RpbResetBucketResp";
    GET_BUCKET_TYPE_REQ = 31, Request, "RpbGetBucketTypeReq";
    SET_BUCKET_TYPE_REQ = 32, Request, "RpbSetBucketTypeReq";
    GET_PREFLIST_REQ = 33, Request, "RpbGetBucketKeyPreflistReq";
    GET_PREFLIST_RESP = 34, Response, "RpbGetBucketKeyPreflistResp";
    FOLD_ROOT_REQ = 210, Request, "RpbAaeFoldMergeRootNValReq";
    FOLD_BRANCH_REQ = 211, Request, "RpbAaeFoldMergeBranchNValReq";
    FOLD_CLOCKS_NVAL_REQ = 212, Request, "RpbAaeFoldFetchClocksNValReq";
    FOLD_TREE_REQ = 213, Request, "RpbAaeFoldMergeTreesRangeReq";
    FOLD_CLOCKS_RANGE_REQ = 214, Request, "RpbAaeFoldFetchClocksRangeReq";
    FOLD_FIND_KEYS_REQ = 215, Request, "RpbAaeFoldFindKeysReq";
    FOLD_STATS_REQ = 216, Request, "RpbAaeFoldObjectStatsReq";
    FOLD_FIND_TOMBS_REQ = 218, Request, "RpbAaeFoldFindTombsReq";
    FOLD_TREE_RESP = 220, Response, "RpbAaeFoldTreeResp";
    FOLD_KEY_VALUE_RESP = 221, Response, "RpbAaeFoldKeyValueResp";
    FOLD_KEY_COUNT_RESP = 222, Response, "RpbAaeFoldKeyCountResp";
    FOLD_LIST_BUCKETS_REQ = 223, Request, "RpbAaeFoldListBucketsReq";
    FOLD_LIST_BUCKETS_RESP = 224, Response, "RpbAaeFoldListBucketsResp";
    FOLD_REAP_REQ = 230, Request, "RpbAaeFoldReapTombsReq";
    FOLD_ERASE_REQ = 231, Request, "RpbAaeFoldEraseKeysReq";
    AUTH_REQ = 253, Request, "RpbAuthReq";
    AUTH_RESP = 254, Response, "RpbAuthResp";
    START_TLS = 255, Request, "RpbStartTls";
}

/// The name and direction of a message code, if this crate knows it.
pub fn describe(code: u8) -> Option<(&'static str, Direction)> {
    TABLE.iter().find(|row| row.0 == code).map(|&(_, direction, name)| (name, direction))
}

/// The protocol's name of a message code, for logs: `unknown` if there is none.
pub fn name(code: u8) -> &'static str {
    describe(code).map_or("unknown", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_have_names() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(describe(GET_REQ), Some(("RpbGetReq", Direction::Request)));
        assert_eq!(name(PUT_RESP), "RpbPutResp");
        assert_eq!(name(27), "unknown");
    }
}
