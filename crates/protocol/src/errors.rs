//! The texts of error answers. Clients compare some of them, so they are Riak's to the letter: prints of
//! Erlang terms for the most part. Only where Riak's printer would break a long term into lines do these
//! stay on one.

use std::fmt::Write;

/// The bucket's name is empty.
pub const EMPTY_BUCKET: &str = "Bucket cannot be zero-length";
/// The key is empty.
pub const EMPTY_KEY: &str = "Key cannot be zero-length";
/// The bucket type's name is empty.
pub const EMPTY_TYPE: &str = "Type cannot be zero-length";
/// A put with `if_none_match` found an object.
pub const MATCH_FOUND: &str = "match_found";
/// A put with `if_not_modified` found another clock.
pub const MODIFIED: &str = "modified";
/// A put with `if_not_modified` found no object.
pub const NOTFOUND: &str = "notfound";
/// A get, put or delete named a bucket type that is not there.
pub const NO_TYPE: &str = "no_type";
/// Not enough replies came in time.
pub const TIMEOUT: &str = "timeout";
/// A queue on the way was full.
pub const OVERLOAD: &str = "overload";
/// A limit of the user has no room for the request.
pub const RATE_LIMITED: &str = "rate_limited";
/// The condition of a write to a consistent type does not hold.
pub const FAILED: &str = "failed";
/// The group of a key of a consistent type does not take the request.
pub const UNAVAILABLE: &str = "unavailable";
/// The preference list is too short for the request.
pub const INSUFFICIENT_VNODES: &str = "insufficient_vnodes_available";
/// Too many vnodes failed for the request to succeed.
pub const TOO_MANY_FAILS: &str = "too_many_fails";
/// TLS was asked for where there is none.
pub const NO_START_TLS: &str = "Security not enabled; STARTTLS not allowed.";
/// A login is refused, for whatever reason.
pub const AUTHENTICATION_FAILED: &str = "Authentication failed";
/// An answer would not fit a frame.
pub const RESPONSE_TOO_LARGE: &str = "response too large";

/// The quorum parameters that can be left unsatisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuorumName {
    /// Replies to a read.
    R,
    /// Primaries among the replies to a read.
    Pr,
    /// Replies to a write.
    W,
    /// Primaries among the replies to a write.
    Pw,
    /// Backend replies to a write.
    Dw,
    /// Distinct nodes among the replies.
    NodeConfirms,
}

impl QuorumName {
    /// The parameter's name in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            QuorumName::R => "r",
            QuorumName::Pr => "pr",
            QuorumName::W => "w",
            QuorumName::Pw => "pw",
            QuorumName::Dw => "dw",
            QuorumName::NodeConfirms => "node_confirms",
        }
    }
}

/// A quorum above the n it counts in, or an n above the bucket's; `n` is the bucket's n_val in the first
/// case and the n asked for in the second.
pub fn n_val_violation(n: u32) -> String {
    format!("{{n_val_violation,{n}}}")
}

/// Fewer replies than wanted.
pub fn unsatisfied(name: QuorumName, want: u32, got: u32) -> String {
    format!("{{{}_val_unsatisfied,{want},{got}}}", name.as_str())
}

/// Fewer vnodes can be reached than must reply.
pub fn insufficient_vnodes(have: u32, need: u32) -> String {
    format!("{{insufficient_vnodes,{have},need,{need}}}")
}

/// A list call or a properties call named a bucket type that is not there.
pub fn no_bucket_type(name: &[u8]) -> String {
    format!("No bucket-type named '{}'", shown(name))
}

/// A name in a sentence: percent-encoded if it is no UTF-8.
fn shown(name: &[u8]) -> String {
    let encoded = || {
        let mut text = Vec::with_capacity(name.len());
        crate::http::target::encode(name, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    std::str::from_utf8(name).map_or_else(|_| encoded(), str::to_owned)
}

/// A bucket type call named a bucket type that is not there.
pub fn invalid_bucket_type(name: &[u8]) -> String {
    format!("Invalid bucket type: {}", erlang_binary(name))
}

/// Properties that cannot be set: each with a reason, printed as an Erlang term (`not_integer`).
pub fn invalid_props<'a>(reasons: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let list: Vec<String> =
        reasons.into_iter().map(|(prop, reason)| format!("{{{prop},{reason}}}")).collect();
    format!("Invalid bucket properties: [{}]", list.join(","))
}

/// An index entry whose value is not of the type its field's suffix says.
pub fn bad_index_field(field: &[u8], value: &[u8]) -> String {
    format!(
        "{{precommit_fail,[{{field_parsing_failed,{{{},{}}}}}]}}",
        erlang_binary(field),
        erlang_binary(value)
    )
}

/// A binary as Erlang prints it: quoted if all of it is printable, a list of numbers otherwise.
pub fn erlang_binary(bytes: &[u8]) -> String {
    if !bytes.is_empty() && bytes.iter().all(|b| matches!(b, b' '..=b'~')) {
        let text = String::from_utf8_lossy(bytes);
        return format!("<<\"{}\">>", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let mut out = String::from("<<");
    for (i, byte) in bytes.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(out, "{comma}{byte}").expect("writing to a String does not fail");
    }
    out + ">>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_riaks() {
        assert_eq!(n_val_violation(3), "{n_val_violation,3}");
        assert_eq!(unsatisfied(QuorumName::R, 2, 1), "{r_val_unsatisfied,2,1}");
        assert_eq!(unsatisfied(QuorumName::NodeConfirms, 3, 1), "{node_confirms_val_unsatisfied,3,1}");
        assert_eq!(insufficient_vnodes(1, 2), "{insufficient_vnodes,1,need,2}");
        assert_eq!(no_bucket_type(b"nope"), "No bucket-type named 'nope'");
        assert_eq!(invalid_bucket_type(b"nope"), "Invalid bucket type: <<\"nope\">>");
        assert_eq!(
            invalid_props([("n_val", "not_integer")]),
            "Invalid bucket properties: [{n_val,not_integer}]"
        );
        assert_eq!(
            bad_index_field(b"n_int", b"abc"),
            "{precommit_fail,[{field_parsing_failed,{<<\"n_int\">>,<<\"abc\">>}}]}"
        );
    }

    #[test]
    fn binaries_print_as_erlang_prints_them() {
        assert_eq!(erlang_binary(b""), "<<>>");
        assert_eq!(erlang_binary(b"a\"b\\"), "<<\"a\\\"b\\\\\">>");
        assert_eq!(erlang_binary(&[0, 255]), "<<0,255>>");
    }
}
