//! One line about a slow request.

use super::stages::STAGES;
use base::Wall;
use ring::Position;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a name in a line: the rest of a longer one is left out, since names may have thousands.
const NAME_MAX: usize = 256;

/// The form of keys in lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowKeys {
    /// As they are.
    Plain,
    /// A hash, by which lines about one key are known.
    #[default]
    Hash,
    /// No keys.
    None,
}

/// The operation of a slow request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowOp {
    /// A read.
    #[default]
    Get,
    /// A write.
    Put,
    /// A delete.
    Delete,
    /// A listing of keys or buckets.
    List,
    /// A fold.
    Fold,
    /// An index query.
    Query,
}

impl SlowOp {
    /// Its name in lines and answers.
    pub fn name(self) -> &'static str {
        match self {
            SlowOp::Get => "get",
            SlowOp::Put => "put",
            SlowOp::Delete => "delete",
            SlowOp::List => "list",
            SlowOp::Fold => "fold",
            SlowOp::Query => "query",
        }
    }
}

/// A wait of a request for another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaWait {
    /// The name of the node.
    pub node: Arc<str>,
    /// The time that it has taken.
    pub time: Duration,
    /// Whether it has yet to answer.
    pub waits: bool,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowLine {
    /// When it was written.
    pub at: Wall,
    /// The operation.
    pub op: SlowOp,
    /// The bucket type.
    pub bucket_type: String,
    /// The bucket.
    pub bucket: String,
    /// The key, in the form that was asked for.
    pub key: Option<String>,
    /// The time since the request came to its node.
    pub time: Duration,
    /// The parts of that time, by [`super::SlowStage`].
    pub stages: [Duration; STAGES],
    /// The other nodes that were asked.
    pub replicas: Vec<ReplicaWait>,
    /// Siblings of the answer, or of the object that is replaced, as far as they are known.
    pub siblings: Option<usize>,
    /// Bytes of values that the request brought or has read.
    pub bytes: usize,
    /// Whether the request still waits.
    pub waits: bool,
    /// The error that it was answered with.
    pub error: Option<String>,
    /// Lines that were left out since the one before.
    pub left_out: u64,
}

/// The key of a bucket type, a bucket and a key, in the form that was asked for.
pub(super) fn key_text(keys: SlowKeys, [bucket_type, bucket, key]: [&[u8]; 3]) -> Option<String> {
    match keys {
        SlowKeys::Plain => Some(shown_name(key)),
        SlowKeys::Hash => {
            let Position(hash) = Position::of_key(bucket_type, bucket, key);
            Some(format!("{hash:016x}"))
        }
        SlowKeys::None => None,
    }
}

/// A name as text: its control characters and what is no text are escaped, and a long one is cut.
pub(super) fn shown_name(name: &[u8]) -> String {
    let shown = &name[..name.len().min(NAME_MAX)];
    let mut text = match std::str::from_utf8(shown) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => shown.escape_ascii().to_string(),
    };
    if name.len() > NAME_MAX {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_texts_of_one_line() {
        assert_eq!(shown_name("käse".as_bytes()), "käse");
        assert_eq!(shown_name(b"a\nb\xff"), "a\\nb\\xff");
        assert_eq!(shown_name(&[b'x'; NAME_MAX]).len(), NAME_MAX);
        assert_eq!(shown_name(&[b'x'; 60_000]), "x".repeat(NAME_MAX) + "…");
    }

    #[test]
    fn keys_are_hashed_unless_they_are_asked_for() {
        let text = |keys, key: &str| key_text(keys, [b"default", b"b", key.as_bytes()]);
        assert_eq!(text(SlowKeys::Plain, "k"), Some("k".to_owned()));
        assert_eq!(text(SlowKeys::None, "k"), None);
        let hash = text(SlowKeys::Hash, "k").unwrap();
        assert_eq!((hash.len(), hash.contains('k')), (16, false));
        assert_ne!(Some(hash), text(SlowKeys::Hash, "l"));
    }
}
