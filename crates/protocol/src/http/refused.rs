//! Why a request is not read: a status and a sentence.

use std::borrow::Cow;

/// A request that is answered without being understood. What follows it on the connection cannot be trusted to be a
/// request, so the connection ends with the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {text}")]
pub struct Refused {
    /// The status to answer.
    pub status: u16,
    /// What is wrong.
    pub text: Cow<'static, str>,
}

impl Refused {
    /// With a status of its own.
    pub fn new(status: u16, text: impl Into<Cow<'static, str>>) -> Refused {
        Refused { status, text: text.into() }
    }

    /// 400.
    pub(super) fn bad(text: &'static str) -> Refused {
        Refused::new(400, text)
    }
}
