//! The options that a query may hold, and what is wrong with those that cannot be.

use bytes::Bytes;
use kv::Quorum;
use protocol::http::target::Query;

use super::fault::Fault;

/// The replies that `name` asks for.
pub(super) fn quorum(query: &Query, name: &'static str) -> Result<Quorum, Fault> {
    let Some(value) = query.get(name) else { return Ok(Quorum::Default) };
    match &value[..] {
        b"one" => Ok(Quorum::One),
        b"quorum" => Ok(Quorum::Quorum),
        b"all" => Ok(Quorum::All),
        b"default" | b"backend" => Ok(Quorum::Default),
        _ => number(value).map(Quorum::Exactly).ok_or_else(|| {
            Fault::bad(format!(
                "{name} query parameter must be an integer or one of the following words: 'one', 'quorum' or 'all'"
            ))
        }),
    }
}

/// Whether `name` is set, if it says.
pub(super) fn flag(query: &Query, name: &'static str) -> Result<Option<bool>, Fault> {
    let Some(value) = query.get(name) else { return Ok(None) };
    match value {
        _ if value.eq_ignore_ascii_case(b"default") => Ok(None),
        _ if value.eq_ignore_ascii_case(b"true") => Ok(Some(true)),
        _ if value.eq_ignore_ascii_case(b"false") => Ok(Some(false)),
        _ => Err(Fault::bad(format!("{name} query parameter must be true or false"))),
    }
}

/// How long the client waits, in milliseconds.
pub(super) fn timeout(query: &Query) -> Result<Option<u32>, Fault> {
    let Some(value) = query.get("timeout") else { return Ok(None) };
    let bad = || Fault::bad(format!("Bad timeout value {:?}", String::from_utf8_lossy(value)));
    number(value).map(Some).ok_or_else(bad)
}

/// The size of a page.
pub(super) fn max_results(query: &Query) -> Result<Option<u32>, Fault> {
    let Some(value) = query.get("max_results") else { return Ok(None) };
    let bad = || Fault::bad(format!("Invalid max_results value {:?}", String::from_utf8_lossy(value)));
    number(value).filter(|&rows| rows > 0).map(Some).ok_or_else(bad)
}

/// How many replicas take part.
pub(super) fn n_val(query: &Query) -> Result<Option<u32>, Fault> {
    let Some(value) = query.get("n_val") else { return Ok(None) };
    number(value).map(Some).ok_or_else(|| Fault::bad("n_val query parameter must be an integer"))
}

fn number(value: &Bytes) -> Option<u32> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
}
