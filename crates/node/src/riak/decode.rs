//! From Riak's messages to the node's requests.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::index::Terms;
use kv::props::{Hook, ModFun, Prop, Repl};
use kv::{
    Bucket, DeleteRequest, GetRequest, IndexRequest, ListBucketsRequest, ListKeysRequest, PutRequest, Quorum,
    Request, Return, TypeChange,
};
use object::{IndexEntry, Link, Metadata};
use protocol::http::media_type;
use protocol::messages as pb;
use protocol::request::DecodeError;

use super::fold;

/// The node's request that a message asks for.
///
/// # Panics
/// If the message is one that the session answers itself.
pub(super) fn request(message: protocol::Request) -> Result<Request, DecodeError> {
    use protocol::Request as M;
    Ok(match message {
        M::Get(message) => Request::Get(get(message)),
        M::Put(message) => Request::Put(put(message)?),
        M::Del(message) => Request::Delete(delete(message)),
        M::ListBuckets(message) => Request::ListBuckets(ListBucketsRequest {
            bucket_type: bucket_type(message.bucket_type),
            stream: message.stream.unwrap_or(false),
            timeout: message.timeout,
        }),
        M::ListKeys(message) => Request::ListKeys(ListKeysRequest {
            bucket: Bucket::typed(message.bucket_type, message.bucket),
            timeout: message.timeout,
        }),
        M::Index(message) => Request::Index(Box::new(index(*message)?)),
        M::GetBucket(message) => Request::GetProps(Bucket::typed(message.bucket_type, message.bucket)),
        M::SetBucket(message) => {
            Request::SetProps(Bucket::typed(message.bucket_type, message.bucket), props(message.props)?)
        }
        M::ResetBucket(message) => Request::ResetProps(Bucket::typed(message.bucket_type, message.bucket)),
        M::GetBucketType(message) => Request::GetTypeProps(message.bucket_type),
        M::SetBucketType(message) => {
            Request::ChangeType(message.bucket_type, TypeChange::Update(props(message.props)?))
        }
        M::GetPreflist(message) => {
            Request::GetPreflist(Bucket::typed(message.bucket_type, message.bucket), message.key)
        }
        M::FoldNVal(code, message) => fold::over_n_val(code, message),
        M::FoldRange(code, message) => fold::over_bucket(code, message)?,
        M::Ping | M::GetClientId | M::SetClientId(_) | M::GetServerInfo | M::Auth(_) | M::StartTls => {
            unreachable!("the session answers these itself")
        }
    })
}

fn index(message: pb::IndexReq) -> Result<IndexRequest, DecodeError> {
    let terms = if message.qtype == i32::from(pb::IndexQueryType::Eq) {
        let is_all = &message.index[..] == b"$bucket";
        match message.key {
            Some(term) => Terms::Exact(term),
            None if is_all => Terms::Exact(Bytes::new()),
            None => return Err(DecodeError::Refused("Invalid equality query undefined")),
        }
    } else {
        match (message.range_min, message.range_max) {
            (Some(first), Some(last)) => Terms::Range(first, last),
            _ => return Err(DecodeError::Refused("Invalid range query: it needs range_min and range_max")),
        }
    };
    let place = message.continuation.as_deref();
    let continuation = place.map(|place| BASE64_STANDARD.decode(place).ok().map(Bytes::from));
    let continuation = match continuation {
        Some(None) => return Err(DecodeError::Refused("Invalid continuation")),
        place => place.flatten(),
    };
    Ok(IndexRequest {
        bucket: Bucket::typed(message.bucket_type, message.bucket),
        field: field(message.index),
        terms,
        return_terms: message.return_terms.unwrap_or(false),
        max_results: message.max_results,
        continuation,
        sort: message.pagination_sort.unwrap_or(false),
        term_regex: message.term_regex,
        stream: message.stream.unwrap_or(false),
        timeout: message.timeout,
    })
}

fn bucket_type(named: Option<Bytes>) -> Bytes {
    named.unwrap_or(Bytes::from_static(kv::bucket::DEFAULT_TYPE))
}

fn get(message: pb::GetReq) -> GetRequest {
    GetRequest {
        bucket: Bucket::typed(message.bucket_type, message.bucket),
        key: message.key,
        r: quorum(message.r),
        pr: quorum(message.pr),
        node_confirms: quorum(message.node_confirms),
        n_val: message.n_val,
        sloppy_quorum: message.sloppy_quorum,
        basic_quorum: message.basic_quorum,
        notfound_ok: message.notfound_ok,
        timeout: message.timeout,
        if_modified: message.if_modified,
        head: message.head.unwrap_or(false),
        deleted_context: message.deletedvclock.unwrap_or(false),
    }
}

fn put(message: Box<pb::PutReq>) -> Result<Box<PutRequest>, DecodeError> {
    let returned = match (message.return_head.unwrap_or(false), message.return_body.unwrap_or(false)) {
        (true, _) => Return::Head,
        (false, true) => Return::Body,
        (false, false) => Return::Nothing,
    };
    let (metadata, value) = content(message.content)?;
    Ok(Box::new(PutRequest {
        bucket: Bucket::typed(message.bucket_type, message.bucket),
        key: message.key,
        key_invented: false,
        context: message.vclock,
        metadata,
        value,
        w: quorum(message.w),
        dw: quorum(message.dw),
        pw: quorum(message.pw),
        node_confirms: quorum(message.node_confirms),
        n_val: message.n_val,
        sloppy_quorum: message.sloppy_quorum,
        timeout: message.timeout,
        returned,
        if_none_match: message.if_none_match.unwrap_or(false),
        if_not_modified: message.if_not_modified.unwrap_or(false),
        conditions: None,
        asis: message.asis.unwrap_or(false),
    }))
}

/// A value and what the client may say of it: vtag, times and the tombstone mark are not its to choose.
///
/// What another protocol could not tell apart is made one here: a pair without a value has an empty one, and names of
/// fields are in lower case, as in Riak.
fn content(content: pb::Content) -> Result<(Metadata, Bytes), DecodeError> {
    let charset = content.charset.as_deref();
    if charset.is_some() && !media_type::can_hold(content.content_type.as_deref(), charset) {
        let text = "Invalid content_type: beside a charset its quotes must end";
        return Err(DecodeError::Refused(text));
    }
    let link = |link: pb::Link| Link {
        bucket: link.bucket.unwrap_or_default(),
        key: link.key.unwrap_or_default(),
        tag: link.tag.unwrap_or_default(),
    };
    let index = |pair: pb::Pair| IndexEntry { field: field(pair.key), value: pair.value.unwrap_or_default() };
    let pair = |pair: pb::Pair| (pair.key, Some(pair.value.unwrap_or_default()));
    let metadata = Metadata {
        content_type: content.content_type,
        charset: content.charset,
        content_encoding: content.content_encoding,
        links: content.links.into_iter().map(link).collect(),
        user_meta: content.usermeta.into_iter().map(pair).collect(),
        indexes: content.indexes.into_iter().map(index).collect(),
        ..Metadata::default()
    };
    Ok((metadata, content.value))
}

/// The name of an index field.
fn field(name: Bytes) -> Bytes {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => Bytes::from(name.to_ascii_lowercase()),
        false => name,
    }
}

fn delete(message: pb::DelReq) -> DeleteRequest {
    DeleteRequest {
        bucket: Bucket::typed(message.bucket_type, message.bucket),
        key: message.key,
        context: message.vclock,
        rw: quorum(message.rw),
        r: quorum(message.r),
        w: quorum(message.w),
        pr: quorum(message.pr),
        pw: quorum(message.pw),
        dw: quorum(message.dw),
        n_val: message.n_val,
        sloppy_quorum: message.sloppy_quorum,
        timeout: message.timeout,
    }
}

fn quorum(field: Option<u32>) -> Quorum {
    match protocol::Quorum::from_field(field) {
        protocol::Quorum::Default => Quorum::Default,
        protocol::Quorum::One => Quorum::One,
        protocol::Quorum::Quorum => Quorum::Quorum,
        protocol::Quorum::All => Quorum::All,
        protocol::Quorum::Exactly(count) => Quorum::Exactly(count),
    }
}

/// The properties a message names. An empty list of hooks is named by its `has_` flag.
fn props(message: pb::BucketProps) -> Result<Vec<Prop>, DecodeError> {
    let some = |field: Option<u32>| field.map(|_| quorum(field));
    let named = [
        message.n_val.map(Prop::NVal),
        message.allow_mult.map(Prop::AllowMult),
        message.last_write_wins.map(Prop::LastWriteWins),
        hooks(message.precommit, message.has_precommit)?.map(Prop::Precommit),
        hooks(message.postcommit, message.has_postcommit)?.map(Prop::Postcommit),
        message.chash_keyfun.map(|fun| Prop::ChashKeyfun(mod_fun(fun))),
        message.linkfun.map(|fun| Prop::Linkfun(mod_fun(fun))),
        message.old_vclock.map(Prop::OldVclock),
        message.young_vclock.map(Prop::YoungVclock),
        message.big_vclock.map(Prop::BigVclock),
        message.small_vclock.map(Prop::SmallVclock),
        some(message.pr).map(Prop::Pr),
        some(message.r).map(Prop::R),
        some(message.w).map(Prop::W),
        some(message.pw).map(Prop::Pw),
        some(message.dw).map(Prop::Dw),
        some(message.rw).map(Prop::Rw),
        message.basic_quorum.map(Prop::BasicQuorum),
        message.notfound_ok.map(Prop::NotfoundOk),
        message.backend.map(|name| Prop::Backend(Some(kept(&name)))),
        message.search.map(|on| Prop::Search(Some(on))),
        message.repl.map(repl).transpose()?.map(Prop::Repl),
        message.search_index.map(|name| Prop::SearchIndex(Some(kept(&name)))),
        message.datatype.map(|name| Prop::Datatype(Some(kept(&name)))),
        message.consistent.map(Prop::Consistent),
        message.write_once.map(Prop::WriteOnce),
        message.hll_precision.map(|bits| Prop::HllPrecision(Some(bits))),
    ];
    Ok(named.into_iter().flatten().collect())
}

fn hooks(list: Vec<pb::CommitHook>, has: Option<bool>) -> Result<Option<Vec<Hook>>, DecodeError> {
    if list.is_empty() && has != Some(true) {
        return Ok(None);
    }
    list.into_iter().map(hook).collect::<Result<_, _>>().map(Some)
}

fn hook(hook: pb::CommitHook) -> Result<Hook, DecodeError> {
    match (hook.modfun, hook.name) {
        (Some(fun), _) => Ok(Hook::Erlang(mod_fun(fun))),
        (None, Some(name)) => Ok(Hook::Named(kept(&name))),
        (None, None) => Err(DecodeError::Malformed("RpbCommitHook: neither modfun nor name".into())),
    }
}

fn mod_fun(fun: pb::ModFun) -> ModFun {
    ModFun { module: kept(&fun.module), function: kept(&fun.function) }
}

fn repl(mode: i32) -> Result<Repl, DecodeError> {
    match pb::ReplMode::try_from(mode) {
        Ok(pb::ReplMode::False) => Ok(Repl::False),
        Ok(pb::ReplMode::Realtime) => Ok(Repl::Realtime),
        Ok(pb::ReplMode::Fullsync) => Ok(Repl::Fullsync),
        Ok(pb::ReplMode::True) => Ok(Repl::True),
        Err(_) => Err(DecodeError::Malformed(format!("RpbBucketProps: no repl mode {mode}"))),
    }
}

/// A copy: properties stay in memory, and a slice would keep the buffer that it was read into.
fn kept(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name)
}
