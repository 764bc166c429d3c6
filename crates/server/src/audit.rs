//! The audit log: a line for each change that an operator asked for, whether it was carried out or refused.
//!
//! A line has the target `audit`: the address of the client, method and path, and the status of the answer. For a
//! change of the security policy it has the command's words in the place of method and path, without passwords.
//!
//! Left out: bodies, which may be large, and persons, as clients are not authenticated.

use crate::socket::ClientOrigin;
use node::http::Change;

/// The start of an answer, before its status.
const BEFORE_STATUS: usize = "HTTP/1.1 ".len();

/// Notes a change that was answered; nothing if `answer` is none.
pub(crate) fn note(change: &Change, from: ClientOrigin, status: u16) {
    if status >= 400 && base::planted!(AuditLineMissing) {
        return;
    }
    let path = String::from_utf8_lossy(&change.path);
    let method = change.method;
    let result = if status < 400 { "done" } else { "refused" };
    tracing::info!(target: "audit", %from, method, %path, status, result, "audit");
}

/// Notes a change of the security policy, by its words without passwords.
pub(crate) fn note_security(words: &str, from: ClientOrigin, status: u16) {
    let result = if status < 400 { "done" } else { "refused" };
    tracing::info!(target: "audit", %from, security = words, status, result, "audit");
}

/// The status of an answer; `None` if it is not one, or tells that the body may come.
pub(crate) fn status_of(answer: &[u8]) -> Option<u16> {
    let digits = answer.get(BEFORE_STATUS..BEFORE_STATUS + 3)?;
    let status: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (answer.starts_with(b"HTTP/1.") && status >= 200).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::sync::mpsc::{Sender, channel};

    /// Passes what the log writes on.
    struct Lines(Sender<String>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn changes_have_a_line_each_whether_done_or_refused() {
        let (lines, written) = channel();
        let log =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || Lines(lines.clone())).finish();
        let change = Change { method: "PUT", path: Bytes::from_static(b"/admin/options") };
        tracing::subscriber::with_default(log, || {
            for status in [204, 403] {
                note(&change, ClientOrigin::LocalUid(7), status);
            }
        });
        let written: Vec<String> = written.iter().collect();
        let [done, refused] = &written[..] else { panic!("two lines, not {written:?}") };
        for (line, words) in
            [(done, ["status=204", "result=\"done\""]), (refused, ["status=403", "result=\"refused\""])]
        {
            assert!(line.contains("INFO audit:") && line.contains("/admin/options"), "{line}");
            assert!(words.iter().all(|words| line.contains(words)), "{line}");
        }
    }

    #[cfg(feature = "planted")]
    #[test]
    fn planted_audit_line_missing_is_seen() {
        base::planted::plant(Some(base::planted::Planted::AuditLineMissing));
        let caught = std::panic::catch_unwind(changes_have_a_line_each_whether_done_or_refused);
        base::planted::plant(None);
        assert!(caught.is_err(), "a refused change without a line passes the test");
    }

    #[test]
    fn a_status_is_read_from_an_answer() {
        assert_eq!(status_of(b"HTTP/1.1 409 Conflict\r\n"), Some(409));
        assert_eq!(status_of(b"HTTP/1.0 204 No Content\r\n"), Some(204));
        for none in [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"", b"HTTP/1.1", b"HTTP/1.1 abc"] {
            assert_eq!(status_of(none), None);
        }
    }
}
