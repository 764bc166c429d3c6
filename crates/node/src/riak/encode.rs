//! From the node's responses and errors to Riak's frames, in Riak's words.
//!
//! An object is written straight from its stored head and values: a GET's way out allocates nothing but room in
//! the output.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::error::Name;
use kv::need::Need;
use kv::props::{BucketProps, Hook, ModFun, Reason, Repl};
use kv::{Error, Found, PreflistEntry, Quorum, Response, TypeStatus};
use object::HeadView;
use protocol::errors::{self, QuorumName};
use protocol::messages as pb;
use protocol::response::{self, Body, ContentView, LinkRef, PairRef};

use super::fold;
use super::session::Asked;
use crate::contents::{Content, Contents};

/// Appends the frame for a response. `context` is scratch memory.
pub(super) fn response(answer: &Response, asked: Asked, context: &mut Vec<u8>, out: &mut Vec<u8>) {
    use protocol::codes;
    match answer {
        Response::Found(found) => object(found, context, out, |out, contents, context, body| {
            response::get(out, contents, context, body);
        }),
        Response::NotFound { deleted_context } => response::get_notfound(out, deleted_context.as_deref()),
        Response::Unchanged => response::get_unchanged(out),
        Response::Put { object: None, key } => response::put_done(out, key.as_deref()),
        Response::Put { object: Some(found), key } => {
            object(found, context, out, |out, contents, context, body| {
                response::put(out, contents, context, key.as_deref(), body);
            });
        }
        Response::Deleted => response::empty(out, codes::DEL_RESP),
        Response::Buckets { names, done } => {
            response::list_buckets(out, names, *done && asked != Asked::AllBuckets);
        }
        Response::Keys { keys, done } => response::list_keys(out, keys, *done),
        Response::Rows(rows) => {
            let text = rows.continuation.as_ref().map(|place| BASE64_STANDARD.encode(place));
            let continuation = text.as_ref().map(String::as_bytes);
            response::index(out, rows.rows.iter(), continuation, rows.done && asked == Asked::Stream);
        }
        Response::Folded(folded) => fold::answer(folded, out),
        Response::Props(props) => response::bucket_props(out, &bucket_props(props)),
        Response::Types(_) | Response::Members(_) | Response::Findings(_) => {
            unreachable!("the protocol has no request for these")
        }
        Response::PropsSet => response::empty(out, codes::SET_BUCKET_RESP),
        Response::PropsReset => response::empty(out, codes::RESET_BUCKET_RESP),
        Response::Preflist(entries) => {
            response::preflist(out, entries.iter().map(preflist_item));
        }
    }
}

fn preflist_item(entry: &PreflistEntry) -> (u32, &str, bool) {
    (entry.partition, &entry.node, entry.primary)
}

fn object(
    found: &Found,
    context: &mut Vec<u8>,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>, Contents<'_>, &[u8], Body),
) {
    match HeadView::parse(&found.head) {
        Ok(head) => {
            context.clear();
            head.context().write_client_bytes(context);
            let body = if found.value.is_some() { Body::Full } else { Body::Head };
            write(out, Contents::new(&head, found), context, body);
        }
        Err(error) => response::error(out, &Error::Damaged(error.to_string()).to_string()),
    }
}

const MICROS: u64 = 1_000_000;

impl ContentView for Content<'_> {
    fn value(&self) -> &[u8] {
        self.value
    }
    fn content_type(&self) -> Option<&[u8]> {
        self.sibling.content_type
    }
    fn charset(&self) -> Option<&[u8]> {
        self.sibling.charset
    }
    fn content_encoding(&self) -> Option<&[u8]> {
        self.sibling.content_encoding
    }
    fn vtag(&self) -> Option<&[u8]> {
        Some(self.vtag.as_ref())
    }
    fn links(&self) -> impl Iterator<Item = LinkRef<'_>> {
        // All three, as in Riak: clients tell an empty tag from none.
        self.sibling.links.clone().map(|link| LinkRef {
            bucket: Some(link.bucket),
            key: Some(link.key),
            tag: Some(link.tag),
        })
    }
    fn last_mod(&self) -> Option<u32> {
        Some(u32::try_from(self.sibling.last_modified / MICROS).unwrap_or(u32::MAX))
    }
    fn last_mod_usecs(&self) -> Option<u32> {
        Some(u32::try_from(self.sibling.last_modified % MICROS).expect("less than a million"))
    }
    fn usermeta(&self) -> impl Iterator<Item = PairRef<'_>> {
        self.sibling.user_meta.clone().map(|pair| (pair.key, pair.value))
    }
    fn indexes(&self) -> impl Iterator<Item = PairRef<'_>> {
        self.sibling.indexes.clone().map(|entry| (entry.field, Some(entry.value)))
    }
    fn deleted(&self) -> bool {
        self.sibling.deleted
    }
}

fn bucket_props(props: &BucketProps) -> pb::BucketProps {
    let repl = match props.repl {
        Repl::False => pb::ReplMode::False,
        Repl::Realtime => pb::ReplMode::Realtime,
        Repl::Fullsync => pb::ReplMode::Fullsync,
        Repl::True => pb::ReplMode::True,
    };
    pb::BucketProps {
        n_val: Some(props.n_val),
        allow_mult: Some(props.allow_mult),
        last_write_wins: Some(props.last_write_wins),
        precommit: props.precommit.iter().map(hook).collect(),
        has_precommit: Some(true),
        postcommit: props.postcommit.iter().map(hook).collect(),
        has_postcommit: Some(true),
        chash_keyfun: Some(mod_fun(&props.chash_keyfun)),
        linkfun: Some(mod_fun(&props.linkfun)),
        old_vclock: Some(props.old_vclock),
        young_vclock: Some(props.young_vclock),
        big_vclock: Some(props.big_vclock),
        small_vclock: Some(props.small_vclock),
        pr: quorum(props.pr),
        r: quorum(props.r),
        w: quorum(props.w),
        pw: quorum(props.pw),
        dw: quorum(props.dw),
        rw: quorum(props.rw),
        basic_quorum: Some(props.basic_quorum),
        notfound_ok: Some(props.notfound_ok),
        backend: props.backend.clone(),
        search: props.search,
        repl: Some(repl.into()),
        search_index: props.search_index.clone(),
        datatype: props.datatype.clone(),
        consistent: props.consistent.then_some(true),
        write_once: Some(props.write_once),
        hll_precision: props.hll_precision,
    }
}

fn hook(hook: &Hook) -> pb::CommitHook {
    match hook {
        Hook::Erlang(fun) => pb::CommitHook { modfun: Some(mod_fun(fun)), name: None },
        Hook::Named(name) => pb::CommitHook { modfun: None, name: Some(name.clone()) },
    }
}

fn mod_fun(fun: &ModFun) -> pb::ModFun {
    pb::ModFun { module: fun.module.clone(), function: fun.function.clone() }
}

fn quorum(quorum: Quorum) -> Option<u32> {
    let quorum = match quorum {
        Quorum::Default => protocol::Quorum::Default,
        Quorum::One => protocol::Quorum::One,
        Quorum::Quorum => protocol::Quorum::Quorum,
        Quorum::All => protocol::Quorum::All,
        Quorum::Exactly(count) => protocol::Quorum::Exactly(count),
    };
    Some(quorum.to_wire())
}

/// The text of an error answer.
pub(super) fn error_text(error: &Error, asked: Asked) -> String {
    match error {
        Error::NValViolation(n) => errors::n_val_violation(*n),
        Error::Unsatisfied { need, want, got } | Error::NoRoom { need, want, got, .. } => {
            errors::unsatisfied(quorum_name(*need), *want, *got)
        }
        Error::InsufficientVnodes { have, need } => errors::insufficient_vnodes(*have, *need),
        Error::MatchFound => errors::MATCH_FOUND.into(),
        Error::Modified => errors::MODIFIED.into(),
        Error::NotFoundCondition => errors::NOTFOUND.into(),
        Error::NoType(name) => no_type(name, asked),
        Error::EmptyName(Name::Bucket) => errors::EMPTY_BUCKET.into(),
        Error::EmptyName(Name::Key) => errors::EMPTY_KEY.into(),
        Error::EmptyName(Name::Type) => errors::EMPTY_TYPE.into(),
        Error::BadContext => "Error processing incoming message: unreadable vclock".into(),
        Error::InvalidProps(list) => {
            let terms: Vec<(&str, String)> =
                list.iter().map(|(prop, reason)| (*prop, term(reason))).collect();
            errors::invalid_props(terms.iter().map(|(prop, term)| (*prop, term.as_str())))
        }
        Error::TypeStatus(status) if *status != TypeStatus::Active => {
            "Invalid bucket properties: not_active".into()
        }
        Error::DefaultTypeFixed => "Invalid bucket properties: no_default_update".into(),
        Error::Timeout => errors::TIMEOUT.into(),
        Error::Overload => errors::OVERLOAD.into(),
        Error::Failed => errors::FAILED.into(),
        Error::Unavailable => errors::UNAVAILABLE.into(),
        Error::BadIndex(_)
        | Error::Precommit(_)
        | Error::TooLarge { .. }
        | Error::TooManySiblings { .. }
        | Error::TooManyBuckets { .. }
        | Error::TooManyResets { .. }
        | Error::TooManyTypes { .. }
        | Error::TypeStatus(_)
        | Error::ListTooLong { .. }
        | Error::BadQuery(_)
        | Error::AnswerTooLong { .. }
        | Error::NotCovered
        | Error::Unreachable
        | Error::Damaged(_)
        | Error::Fenced(_)
        | Error::Exhausted(_)
        | Error::Unsupported(_)
        | Error::NotInConsistentTypes(_)
        | Error::Store(_) => error.to_string(),
    }
}

fn no_type(name: &Bytes, asked: Asked) -> String {
    match asked {
        Asked::Object => errors::NO_TYPE.into(),
        Asked::Bucket | Asked::AllBuckets | Asked::Stream => errors::no_bucket_type(name),
        Asked::Type => errors::invalid_bucket_type(name),
    }
}

/// A reason as an Erlang term.
fn term(reason: &Reason) -> String {
    match reason {
        Reason::Word(word) => (*word).into(),
        Reason::Text(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

fn quorum_name(need: Need) -> QuorumName {
    match need {
        Need::R => QuorumName::R,
        Need::Pr => QuorumName::Pr,
        Need::W => QuorumName::W,
        Need::Pw => QuorumName::Pw,
        Need::Dw => QuorumName::Dw,
        Need::NodeConfirms => QuorumName::NodeConfirms,
    }
}
