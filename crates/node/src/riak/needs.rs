//! The permissions that each message needs: one table, exhaustive over decoded messages.
//!
//! A message that answers values needs `riak_kv.get`, also a write that answers the object; Riak asks for the right to
//! put alone. Folds need permissions of their own, where Riak asks for none.

use bytes::Bytes;
use kv::bucket::DEFAULT_TYPE;
use protocol::{Request, codes};
use security::{Needs, Permission as P, Target};

/// The needs of a message.
pub(super) fn needs(message: &Request) -> Needs<'_> {
    match message {
        // They come before a login is done.
        Request::StartTls | Request::Auth(_) => Needs::Nothing,
        Request::Ping | Request::GetClientId | Request::SetClientId(_) | Request::GetServerInfo => {
            Needs::Login
        }
        Request::Get(m) => Needs::of([P::Get], bucket(&m.bucket_type, &m.bucket)),
        Request::Put(m) => {
            let answers = m.return_body.unwrap_or(false) || m.return_head.unwrap_or(false);
            Needs::of([P::Put], bucket(&m.bucket_type, &m.bucket)).and_if(answers, P::Get)
        }
        Request::Del(m) => Needs::of([P::Delete], bucket(&m.bucket_type, &m.bucket)),
        Request::ListBuckets(m) => Needs::of([P::ListBuckets], Target::Type(named(&m.bucket_type))),
        Request::ListKeys(m) => Needs::of([P::ListKeys], bucket(&m.bucket_type, &m.bucket)),
        Request::Index(m) => Needs::of([P::Index], bucket(&m.bucket_type, &m.bucket)),
        Request::GetBucket(m) => Needs::of([P::GetBucket], bucket(&m.bucket_type, &m.bucket)),
        Request::SetBucket(m) => Needs::of([P::SetBucket], bucket(&m.bucket_type, &m.bucket)),
        Request::ResetBucket(m) => Needs::of([P::SetBucket], bucket(&m.bucket_type, &m.bucket)),
        Request::GetBucketType(m) => Needs::of([P::GetBucketType], Target::Type(&m.bucket_type)),
        Request::SetBucketType(m) => Needs::of([P::SetBucketType], Target::Type(&m.bucket_type)),
        Request::GetPreflist(m) => Needs::of([P::GetPreflist], bucket(&m.bucket_type, &m.bucket)),
        Request::FoldNVal(..) | Request::FoldRange(..) if base::planted!(RouteWithoutPermission) => {
            Needs::Login
        }
        Request::FoldNVal(..) => Needs::of([P::Fold], Target::Any),
        Request::FoldRange(code, m) => {
            let target = bucket(&m.bucket_type, &m.bucket);
            Needs::of([P::Fold], target).and_if(!only_finds(*code), P::Purge)
        }
    }
}

/// Whether a fold changes nothing. A code that is not named here counts as one that changes.
fn only_finds(code: u8) -> bool {
    matches!(
        code,
        codes::FOLD_TREE_REQ
            | codes::FOLD_CLOCKS_RANGE_REQ
            | codes::FOLD_FIND_KEYS_REQ
            | codes::FOLD_STATS_REQ
            | codes::FOLD_FIND_TOMBS_REQ
    )
}

fn named(bucket_type: &Option<Bytes>) -> &[u8] {
    bucket_type.as_deref().unwrap_or(DEFAULT_TYPE)
}

fn bucket<'a>(bucket_type: &'a Option<Bytes>, bucket: &'a Bytes) -> Target<'a> {
    Target::Bucket(named(bucket_type), bucket)
}

#[cfg(test)]
pub(super) mod tests {
    use protocol::messages as pb;

    use super::*;

    /// A message of each code, with the bucket `b` or the type `t` where it has one.
    pub(in crate::riak) fn message(code: u8) -> Request {
        let (b, t) = (Bytes::from_static(b"b"), Bytes::from_static(b"t"));
        match code {
            codes::PING_REQ => Request::Ping,
            codes::GET_CLIENT_ID_REQ => Request::GetClientId,
            codes::SET_CLIENT_ID_REQ => Request::SetClientId(Default::default()),
            codes::GET_SERVER_INFO_REQ => Request::GetServerInfo,
            codes::AUTH_REQ => Request::Auth(Default::default()),
            codes::START_TLS => Request::StartTls,
            codes::GET_REQ => Request::Get(pb::GetReq { bucket: b, ..Default::default() }),
            codes::PUT_REQ => Request::Put(Box::new(pb::PutReq { bucket: b, ..Default::default() })),
            codes::DEL_REQ => Request::Del(pb::DelReq { bucket: b, ..Default::default() }),
            codes::LIST_BUCKETS_REQ => Request::ListBuckets(Default::default()),
            codes::LIST_KEYS_REQ => Request::ListKeys(pb::ListKeysReq { bucket: b, ..Default::default() }),
            codes::INDEX_REQ => Request::Index(Box::new(pb::IndexReq { bucket: b, ..Default::default() })),
            codes::GET_BUCKET_REQ => Request::GetBucket(pb::GetBucketReq { bucket: b, ..Default::default() }),
            codes::SET_BUCKET_REQ => {
                Request::SetBucket(Box::new(pb::SetBucketReq { bucket: b, ..Default::default() }))
            }
            codes::RESET_BUCKET_REQ => {
                Request::ResetBucket(pb::ResetBucketReq { bucket: b, ..Default::default() })
            }
            codes::GET_BUCKET_TYPE_REQ => Request::GetBucketType(pb::GetBucketTypeReq { bucket_type: t }),
            codes::SET_BUCKET_TYPE_REQ => Request::SetBucketType(Box::new(pb::SetBucketTypeReq {
                bucket_type: t,
                ..Default::default()
            })),
            codes::GET_PREFLIST_REQ => {
                Request::GetPreflist(pb::GetPreflistReq { bucket: b, ..Default::default() })
            }
            codes::FOLD_ROOT_REQ
            | codes::FOLD_BRANCH_REQ
            | codes::FOLD_CLOCKS_NVAL_REQ
            | codes::FOLD_LIST_BUCKETS_REQ => Request::FoldNVal(code, Default::default()),
            _ => Request::FoldRange(code, pb::FoldRangeReq { bucket: b, ..Default::default() }),
        }
    }

    /// The needs of each code that is a request's.
    const TABLE: &[(u8, &str)] = &[
        (1, "Login"),
        (3, "Login"),
        (5, "Login"),
        (7, "Login"),
        (9, "riak_kv.get on default/b"),
        (11, "riak_kv.put on default/b"),
        (13, "riak_kv.delete on default/b"),
        (15, "riak_kv.list_buckets on default"),
        (17, "riak_kv.list_keys on default/b"),
        (19, "riak_core.get_bucket on default/b"),
        (21, "riak_core.set_bucket on default/b"),
        (25, "riak_kv.index on default/b"),
        (29, "riak_core.set_bucket on default/b"),
        (31, "riak_core.get_bucket_type on t"),
        (32, "riak_core.set_bucket_type on t"),
        (33, "riak_kv.get_preflist on default/b"),
        (210, "annulet.fold on any"),
        (211, "annulet.fold on any"),
        (212, "annulet.fold on any"),
        (213, "annulet.fold on default/b"),
        (214, "annulet.fold on default/b"),
        (215, "annulet.fold on default/b"),
        (216, "annulet.fold on default/b"),
        (218, "annulet.fold on default/b"),
        (223, "annulet.fold on any"),
        (230, "annulet.fold annulet.purge on default/b"),
        (231, "annulet.fold annulet.purge on default/b"),
        (253, "Nothing"),
        (255, "Nothing"),
    ];

    fn text(needs: Needs<'_>) -> String {
        match needs {
            Needs::All(permissions, target) => {
                let names: Vec<_> = permissions.iter().map(P::name).collect();
                format!("{} on {target}", names.join(" "))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_code_of_a_request_has_its_needs() {
        let is_request =
            |code: &u8| codes::describe(*code).is_some_and(|(_, way)| way == codes::Direction::Request);
        let table: Vec<_> = (0..=u8::MAX)
            .filter(is_request)
            .map(|code| {
                let message = message(code);
                assert_eq!(message.code(), code);
                (code, text(needs(&message)))
            })
            .collect();
        let expected: Vec<_> = TABLE.iter().map(|&(code, needs)| (code, needs.to_owned())).collect();
        assert_eq!(table, expected);
    }

    #[test]
    fn a_write_that_answers_the_object_reads_it() {
        let both = "riak_kv.get riak_kv.put on default/b";
        for (body, head, needed) in
            [(false, false, "riak_kv.put on default/b"), (true, false, both), (false, true, both)]
        {
            let Request::Put(mut put) = message(codes::PUT_REQ) else { panic!("another message") };
            (put.return_body, put.return_head) = (Some(body), Some(head));
            assert_eq!(text(needs(&Request::Put(put))), needed);
        }
    }

    #[test]
    fn a_fold_of_an_unknown_code_may_change() {
        assert_eq!(text(needs(&message(249))), "annulet.fold annulet.purge on default/b");
    }
}
