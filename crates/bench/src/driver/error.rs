//! Kinds of errors, as a client sees them.

use protocol::errors;

/// A condition of a write to a consistent bucket type did not hold.
const FAILED: &str = "failed";

/// A consistent bucket type has no leader or no majority; nothing was applied.
const UNAVAILABLE: &str = "unavailable";

/// HTTP's text where the protocol buffers say `timeout`.
const HTTP_TIMEOUT: &str = "request timed out";

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The server said that too few replies came in time.
    Timeout,
    /// The server said that it has too much to do.
    Overload,
    /// Fewer replies than wanted, or too few nodes to ask.
    Unavailable,
    /// A condition of a write did not hold.
    Precondition,
    /// Something that must be there is not.
    Missing,
    /// No answer came in the time of the workload.
    NoAnswer,
    /// The connection broke while an answer was owed.
    Disconnected,
    /// A connection could not be made.
    Refused,
    /// An answer that makes no sense.
    Protocol,
    /// The server does not know the request.
    Unsupported,
    /// Anything else that the server said.
    Other,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::Timeout,
        ErrorKind::Overload,
        ErrorKind::Unavailable,
        ErrorKind::Precondition,
        ErrorKind::Missing,
        ErrorKind::NoAnswer,
        ErrorKind::Disconnected,
        ErrorKind::Refused,
        ErrorKind::Protocol,
        ErrorKind::Unsupported,
        ErrorKind::Other,
    ];

    /// Its name in results and workloads.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Timeout => "timeout",
            ErrorKind::Overload => "overload",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Precondition => "precondition",
            ErrorKind::Missing => "missing",
            ErrorKind::NoAnswer => "no-answer",
            ErrorKind::Disconnected => "disconnected",
            ErrorKind::Refused => "refused",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Other => "other",
        }
    }

    /// The kind of an error that a Riak or an Annulet tells in words.
    pub fn of_text(text: &str) -> ErrorKind {
        if text.contains(errors::OVERLOAD) || text.contains(errors::RATE_LIMITED) {
            ErrorKind::Overload
        } else if text.contains(errors::TIMEOUT) || text.contains(HTTP_TIMEOUT) {
            ErrorKind::Timeout
        } else if text.contains("unsatisfied")
            || text.contains(errors::INSUFFICIENT_VNODES)
            || text.contains("insufficient_vnodes")
            || text.contains(errors::TOO_MANY_FAILS)
            || text == UNAVAILABLE
        {
            ErrorKind::Unavailable
        } else if [errors::MATCH_FOUND, errors::MODIFIED, FAILED].contains(&text) {
            ErrorKind::Precondition
        } else if text.starts_with("Unknown message code") || text.contains("not_supported") {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Other
        }
    }

    /// Whether trying again may help.
    pub fn may_pass(self) -> bool {
        !matches!(
            self,
            ErrorKind::Precondition | ErrorKind::Missing | ErrorKind::Unsupported | ErrorKind::Protocol
        )
    }

    /// Whether a write that failed so was certainly not done, nor will be.
    pub fn is_certain(self) -> bool {
        matches!(self, ErrorKind::Precondition | ErrorKind::Refused | ErrorKind::Unsupported)
    }
}
