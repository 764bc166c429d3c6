//! What a client is told when something is wrong, in Riak's words where Riak has some.

use std::borrow::Cow;

use kv::Error;
use kv::error::Name;
use kv::need::Need;
use object::index::{IndexError, IndexErrors};
use protocol::errors;
use protocol::http::{Answer, Connection, Refused};

use super::names::shown;

/// A status and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub status: u16,
    pub text: Cow<'static, str>,
    /// Whether the text is JSON, not a sentence.
    is_json: bool,
}

impl Fault {
    /// A status of one's own choice.
    pub fn new(status: u16, text: impl Into<Cow<'static, str>>) -> Fault {
        Fault { status, text: text.into(), is_json: false }
    }

    /// Something that clients take apart.
    pub fn json(status: u16, value: &serde_json::Value) -> Fault {
        Fault { status, text: value.to_string().into(), is_json: true }
    }

    /// 400.
    pub fn bad(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::new(400, text)
    }

    /// Answers it.
    pub fn write(&self, connection: Connection, out: &mut Vec<u8>) {
        let mut answer = Answer::new(out, connection, self.status);
        if self.status == 401 {
            // Riak's realm, which clients keep passwords under.
            answer.header("WWW-Authenticate", "Basic realm=\"Riak\"");
        }
        if self.text.is_empty() {
            return answer.body(b"");
        }
        if self.is_json {
            answer.header("Content-Type", "application/json");
            return answer.body(self.text.as_bytes());
        }
        answer.header("Content-Type", "text/plain");
        answer.body(format!("{}\n", self.text).as_bytes());
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        Fault::new(refused.status, refused.text)
    }
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Fault {
        match error {
            Error::NValViolation(n) => Fault::bad(format!(
                "Specified w/dw/pw/node_confirms values invalid for bucket n value of {n}"
            )),
            Error::Unsatisfied { need, want, got } => {
                Fault::new(503, format!("{}-value unsatisfied: {got}/{want}", need_name(*need)))
            }
            // Clients that compare Riak's text find it in the first line.
            Error::NoRoom { need, want, got, full } => Fault::new(
                503,
                format!(
                    "{}-value unsatisfied: {got}/{want}\nno room on the disk of {full} of the nodes: /health/ready of \
                     each tells",
                    need_name(*need)
                ),
            ),
            Error::InsufficientVnodes { have, need } => {
                Fault::new(503, errors::insufficient_vnodes(*have, *need))
            }
            Error::MatchFound | Error::Modified | Error::NotFoundCondition | Error::Failed => {
                Fault::new(412, "")
            }
            Error::NoType(name) => Fault::new(404, format!("Unknown bucket type: {}", shown(name))),
            Error::EmptyName(Name::Bucket) => Fault::bad(errors::EMPTY_BUCKET),
            Error::EmptyName(Name::Key) => Fault::bad(errors::EMPTY_KEY),
            Error::EmptyName(Name::Type) => Fault::bad(errors::EMPTY_TYPE),
            Error::BadContext => Fault::bad("The X-Riak-Vclock header is not a vclock of this cluster"),
            Error::BadQuery(text) => Fault::bad(text.clone()),
            Error::AnswerTooLong { .. } => Fault::bad(error.to_string()),
            Error::BadIndex(errors) => Fault::bad(index_text(errors)),
            Error::TooLarge { what: "value" | "object" | "metadata" | "object head", .. } => {
                Fault::new(413, error.to_string())
            }
            Error::TooLarge { .. } => Fault::bad(error.to_string()),
            Error::TooManySiblings { .. } => Fault::new(409, error.to_string()),
            Error::InvalidProps(_) | Error::DefaultTypeFixed | Error::TypeStatus(_) => {
                Fault::bad(error.to_string())
            }
            Error::Precommit(reason) => Fault::new(403, reason.clone()),
            Error::Timeout => Fault::new(503, "request timed out"),
            Error::Overload => Fault::new(503, errors::OVERLOAD),
            Error::TooManyBuckets { .. }
            | Error::TooManyResets { .. }
            | Error::TooManyTypes { .. }
            | Error::ListTooLong { .. }
            | Error::NotCovered
            | Error::Unreachable
            | Error::Fenced(_) => Fault::new(503, error.to_string()),
            // Riak's text under another status: whoever asks again later may be served.
            Error::Unavailable => Fault::new(503, format!("Error:\n{}", errors::UNAVAILABLE)),
            Error::NotInConsistentTypes(_) => Fault::new(501, error.to_string()),
            Error::Exhausted(_) => Fault::new(507, error.to_string()),
            Error::Damaged(_) | Error::Store(_) | Error::Unsupported(_) => {
                Fault::new(500, format!("Error:\n{error}"))
            }
        }
    }
}

fn need_name(need: Need) -> &'static str {
    match need {
        Need::R => "R",
        Need::Pr => "PR",
        Need::W => "W",
        Need::Pw => "PW",
        Need::Dw => "DW",
        Need::NodeConfirms => "node_confirms",
    }
}

/// The first thing that is wrong with index entries.
fn index_text(errors: &IndexErrors) -> String {
    let text = shown;
    match errors.0.first() {
        Some(IndexError::UnknownFieldType { field }) if field.starts_with(b"$") => {
            format!("The field '{}' cannot be written: names with '$' are the store's own.", text(field))
        }
        Some(IndexError::UnknownFieldType { field }) => {
            format!("Unknown field type for field: '{}'.", text(field))
        }
        Some(IndexError::FieldParsingFailed { field, value }) => {
            format!("Could not parse field '{}', value '{}'.", text(field), text(value))
        }
        None => errors.to_string(),
    }
}
