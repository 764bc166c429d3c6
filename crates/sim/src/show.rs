//! Requests and answers as the trace shows them, and what a client keeps of an answer.

use base::checksum::crc32c;
use bytes::Bytes;
use kv::aae::{TreeAnswer, TreeAsk};
use kv::replica::{Answer, Ask};
use kv::{Error, IndexRequest, Page, PropsChange, Request, Response};
use node::PeerMessage;
use node::peer::LeaderAnswer;
use object::{Head, HeadView};

/// The context that an answer gives a client to write with.
pub(crate) fn context(answer: &Result<Response, Error>) -> Option<Bytes> {
    match answer {
        Ok(Response::Found(found)) | Ok(Response::Put { object: Some(found), .. }) => context_of(&found.head),
        Ok(Response::NotFound { deleted_context }) => deleted_context.clone(),
        _ => None,
    }
}

fn context_of(head: &Bytes) -> Option<Bytes> {
    let mut bytes = Vec::new();
    // A head that cannot be read is for the checker to report.
    HeadView::parse(head).ok()?.context().write_client_bytes(&mut bytes);
    Some(bytes.into())
}

/// A request as the trace shows it.
pub(crate) fn request(request: &Request) -> String {
    let name = |bytes: &Bytes| bytes.escape_ascii().to_string();
    let blind = |context: &Option<Bytes>| if context.is_some() { "" } else { " blind" };
    match request {
        Request::Get(get) => format!("get {}/{}", name(&get.bucket.name), name(&get.key)),
        Request::Put(put) => {
            let key = put.key.as_ref().map(name).unwrap_or_default();
            format!("put {}/{key} +{}{}", name(&put.bucket.name), put.value.len(), blind(&put.context))
        }
        Request::Delete(delete) => {
            format!("delete {}/{}{}", name(&delete.bucket.name), name(&delete.key), blind(&delete.context))
        }
        Request::Index(index) => {
            let IndexRequest { bucket, field, terms, max_results, .. } = &**index;
            let from = if index.continuation.is_some() { " further" } else { "" };
            format!("search {}/{} {terms:?} {max_results:?}{from}", name(&bucket.name), name(field))
        }
        other => format!("{other:?}"),
    }
}

/// An answer as the trace shows it.
pub(crate) fn answer(result: &Result<Response, Error>) -> String {
    match result {
        Ok(Response::Found(found)) => format!("found {}", head(&found.head)),
        Ok(Response::Put { .. }) => "written".to_owned(),
        Ok(Response::Props(props)) => format!("props {}", props.young_vclock),
        Ok(Response::Rows(rows)) => {
            let end = if rows.continuation.is_some() { ", to be continued" } else { "" };
            format!("rows {:?}, done {}{end}", rows.rows, rows.done)
        }
        other => format!("{other:?}"),
    }
}

/// A head as the trace shows it.
pub(crate) fn head(bytes: &Bytes) -> String {
    match Head::decode(bytes) {
        Ok(head) => {
            let siblings = head.siblings().iter();
            let dots: Vec<_> = siblings.map(|s| (s.dot.counter, s.metadata.deleted, s.value_len)).collect();
            format!("{dots:?} under {:?}", head.context().entries())
        }
        Err(error) => error.to_string(),
    }
}

/// A message between nodes as the trace shows it.
pub(crate) fn message(message: &PeerMessage) -> String {
    match message {
        PeerMessage::Ping { id, .. } => format!("ping {:x}", id.0),
        PeerMessage::Pong { id, .. } => format!("pong {:x}", id.0),
        PeerMessage::Ask { id, key, ask, .. } => {
            format!("ask {:x} {}: {}", id.0, ledger_key(key), question(ask))
        }
        PeerMessage::Answer { id, result, .. } => match result {
            Ok(Answer::Read(Some(stored))) => format!("answer {:x}: {}", id.0, head(&stored.head)),
            other => format!("answer {:x}: {other:?}", id.0),
        },
        PeerMessage::Forward { id, request: asked, .. } => format!("forward {:x}: {}", id.0, request(asked)),
        PeerMessage::Forwarded { id, result } => format!("forwarded {:x}: {}", id.0, answer(result)),
        PeerMessage::Props { id, change: PropsChange::Bucket(bucket, change) } => {
            format!("props {:x} {} {}", id.0, bucket.name.escape_ascii(), change.stamp)
        }
        PeerMessage::Props { id, change: PropsChange::Type(name, change) } => {
            format!("type {:x} {} {}", id.0, name.escape_ascii(), change.stamp)
        }
        PeerMessage::AskPage { id, ask, .. } => {
            format!("ask page {:x} {:?} from {:?}", id.0, ask.partitions, ask.start)
        }
        PeerMessage::Page { id, page: Ok(Page { sum: Some(sum), rest, .. }) } => {
            format!("page {:x}: {sum:?}, rest {rest:?}", id.0)
        }
        PeerMessage::Page { id, page: Ok(page) } => {
            format!("page {:x}: {} names, rest {:?}", id.0, page.names.len(), page.rest)
        }
        PeerMessage::Page { id, page: Err(error) } => format!("page {:x}: {error}", id.0),
        PeerMessage::AskRows { id, ask, .. } => {
            format!("ask rows {:x} of {} prefixes behind {:?}", id.0, ask.prefixes.len(), ask.after)
        }
        PeerMessage::Rows { id, page: Ok(page) } => {
            format!(
                "rows {:x}: {}, next {:?}, others {}",
                id.0,
                page.rows.len(),
                page.next,
                page.others.len()
            )
        }
        PeerMessage::Rows { id, page: Err(error) } => format!("rows {:x}: {error}", id.0),
        PeerMessage::Membership { .. } => "a word of membership".to_owned(),
        PeerMessage::AskCopy { id, target, partitions, start } => {
            format!("ask copy {:x} for ring {target}: {partitions:?} from {start:?}", id.0)
        }
        PeerMessage::CopyPart { id, part: Ok(part) } => {
            format!("copy {:x}: {} objects, rest {:?} from {:?}", id.0, part.objects, part.rest, part.next)
        }
        PeerMessage::CopyPart { id, part: Err(error) } => format!("copy {:x}: {error}", id.0),
        PeerMessage::AskTree { id, ask, .. } => match ask {
            TreeAsk::Roots { roots } => format!("ask tree {:x}: {} roots", id.0, roots.len()),
            TreeAsk::Groups { tree, by, groups } => {
                format!("ask tree {:x} {tree:?}: {} groups by {by:?}", id.0, groups.len())
            }
            TreeAsk::Keys { tree, segments, from, .. } => {
                format!("ask tree {:x} {tree:?}: keys of {segments:?} from {from:?}", id.0)
            }
        },
        PeerMessage::Tree { id, answer } => match answer {
            Ok(TreeAnswer::Keys(page)) => {
                format!("tree {:x}: {} keys, next {:?}", id.0, page.keys.len(), page.next)
            }
            other => format!("tree {:x}: {other:?}", id.0),
        },
        PeerMessage::AskProps { id, .. } => format!("ask props {:x}", id.0),
        PeerMessage::PropsInForce { id } => format!("props in force {:x}", id.0),
        PeerMessage::Groups { to, lane, envelope, .. } => {
            format!("groups of shard {} {lane:?}: {} crc {:08x}", to.0, envelope.len(), crc32c(envelope))
        }
        PeerMessage::CatchUp { to, message } => {
            format!("catch-up of shard {}: {} crc {:08x}", to.0, message.len(), crc32c(message))
        }
        PeerMessage::AskLeader { id, number, request: asked, .. } => {
            let number = number.map(|(_, number)| number);
            format!("ask leader {:x} #{number:?}: {}", id.0, request(asked))
        }
        PeerMessage::LeaderAnswer { id, answer: LeaderAnswer::Done(result) } => {
            format!("leader answers {:x}: {}", id.0, answer(result))
        }
        PeerMessage::LeaderAnswer { id, answer } => format!("leader answers {:x}: {answer:?}", id.0),
    }
}

fn question(ask: &Ask) -> String {
    match ask {
        Ask::Read { want } => format!("{want:?}"),
        Ask::Merge { head: bytes, hints, reason, .. } => {
            format!("{reason:?} {} hints {hints:?}", head(bytes))
        }
        Ask::Reap { round, tombstone } => format!("{round:?} {}", head(tombstone)),
    }
}

fn ledger_key(key: &Bytes) -> String {
    match object::key::decode_object_key(key) {
        Ok(parts) => format!("{}/{}", parts.bucket.escape_ascii(), parts.key.escape_ascii()),
        Err(error) => error.to_string(),
    }
}
