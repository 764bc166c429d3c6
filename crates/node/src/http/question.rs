//! Questions of clients and operators to the whole node, which its shell answers.

use bytes::Bytes;
use protocol::http::Method;

use super::admin::{self, BackupPage, ClusterPage, CompactPage, Page, PurgePage, StrongPage, TreesPage};
use super::fault::Fault;

/// A question that no shard alone can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The node's statistics.
    Stats,
    /// The same for Prometheus, in the form that this header asks for.
    Metrics {
        /// `Accept`; empty if there is none.
        accept: Bytes,
    },
    /// The node's status.
    Status,
    /// The node's readiness for clients.
    Ready,
    /// The liveness of the process.
    Live,
    /// The members, as targets of Prometheus.
    Targets,
    /// The levels of the log, or a change of one. With the request's body if it is a change.
    Log(Option<Bytes>),
    /// The requests that were slow lately, or a change of their threshold. With the request's body if it is a change.
    Slow(Option<Bytes>),
    /// The agreement of the cluster's nodes, or a change of it. With the request's body.
    Cluster(ClusterPage, Bytes),
    /// The node's backup, or its begin or end. With the request's body.
    Backup(BackupPage, Bytes),
    /// The node's hash trees, or work on them. With the request's body.
    Trees(TreesPage, Bytes),
    /// The state of the compaction of the node's stores, or its begin.
    Compact(CompactPage),
    /// The groups of consistent bucket types, or their recovery. With the request's body.
    Strong(StrongPage, Bytes),
    /// The node's purge, or its begin or end.
    Purge(PurgePage),
    /// A command about users, groups, sources and grants, in the request's body, which may have a password.
    Security(Bytes),
    /// The user of the connection.
    Whoami,
}

impl Question {
    /// The question of a page for operators; none of a page that the session answers.
    pub(super) fn of_page(page: &Page, method: Method, body: &[u8]) -> Result<Option<Question>, Fault> {
        let bytes = || Bytes::copy_from_slice(body);
        let is_post = method == Method::Post;
        let change = || is_post.then(bytes);
        Ok(Some(match page {
            Page::Status => Question::Status,
            Page::Cluster(page) => Question::Cluster(*page, bytes()),
            Page::Backup if is_post => Question::Backup(BackupPage::Begin, bytes()),
            Page::Backup => Question::Backup(BackupPage::Show, bytes()),
            Page::StopBackup => Question::Backup(BackupPage::Stop, bytes()),
            Page::Trees(page) => Question::Trees(*page, bytes()),
            Page::Compact if is_post => Question::Compact(CompactPage::Begin),
            Page::Compact => Question::Compact(CompactPage::Show),
            Page::Strong(page) => Question::Strong(*page, bytes()),
            Page::Targets => Question::Targets,
            Page::Log => Question::Log(change()),
            Page::Slow => Question::Slow(change()),
            Page::Purge => Question::Purge(admin::purge_page(method, body)?),
            Page::StopPurge => Question::Purge(PurgePage::Stop),
            Page::Whoami => Question::Whoami,
            Page::Security => Question::Security(bytes()),
            _ => return Ok(None),
        }))
    }
}
