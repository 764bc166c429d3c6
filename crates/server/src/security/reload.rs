//! Certificates, keys and revocation lists, read again while the node serves: at SIGHUP, or on request.
//!
//! 1. All files are read and checked: those for clients, and those between nodes.
//! 2. If each is of use, all are put in force. Otherwise nothing changes, and the error names the file.
//!
//! Connections that are open stay, but for those of clients whose certificate is not valid any more: they end with
//! their next message.

use super::door::DoorGuard;
use crate::membership::Answered;
use crate::peer::{Peers, TlsError};
use serde_json::json;
use std::sync::Arc;

/// The certificates that were read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reloaded {
    /// Those for clients.
    clients: bool,
    /// Those between nodes.
    peers: bool,
}

/// Why nothing was read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// A file is of no use.
    #[error("{0}; the certificates stay as they were")]
    File(#[from] TlsError),
    /// The node has no certificates.
    #[error("this node has no certificates: see --tls-cert and --peer-cert")]
    None,
    /// The thread that reads has ended.
    #[error("the files could not be read")]
    NotRead,
}

/// Reads all files again, on a thread that may wait for a disk, and notes the outcome in the log.
pub(crate) async fn reload(
    guard: Arc<DoorGuard>,
    peers: Option<Arc<Peers>>,
) -> Result<Reloaded, ReloadError> {
    let read = tokio::task::spawn_blocking(move || read_and_replace(&guard, peers.as_deref())).await;
    let result = read.unwrap_or(Err(ReloadError::NotRead));
    match &result {
        Ok(reloaded) => tracing::info!("{}", reloaded.text()),
        // A terminal that is closed says the same word.
        Err(ReloadError::None) => tracing::info!("nothing is reloaded: {}", ReloadError::None),
        Err(error) => tracing::error!("certificates are not reloaded: {error}"),
    }
    result
}

/// The answer to an operator.
pub(super) fn answer(result: Result<Reloaded, ReloadError>) -> Answered {
    match result {
        Ok(reloaded) => Answered { status: 200, body: json!({ "text": reloaded.text() }) },
        Err(error @ (ReloadError::File(_) | ReloadError::None)) => Answered::wrong(409, error),
        Err(error @ ReloadError::NotRead) => Answered::wrong(503, error),
    }
}

fn read_and_replace(guard: &DoorGuard, peers: Option<&Peers>) -> Result<Reloaded, ReloadError> {
    // Of two reloads, the later one has read the files later.
    let _turn = guard.reload_turn();
    let clients = guard.certificates();
    let for_clients =
        clients.map(|clients| Ok::<_, TlsError>((clients, clients.read_again()?))).transpose()?;
    let for_peers = peers.map(|peers| Ok::<_, TlsError>((peers, peers.tls().read_again()?))).transpose()?;
    let reloaded = Reloaded { clients: for_clients.is_some(), peers: for_peers.is_some() };
    if !reloaded.clients && !reloaded.peers {
        return Err(ReloadError::None);
    }

    if let Some((clients, tls)) = for_clients {
        clients.replace(tls);
    }
    if let Some((peers, ends)) = for_peers {
        peers.tls().replace(ends);
    }
    Ok(reloaded)
}

impl Reloaded {
    fn text(self) -> &'static str {
        match (self.clients, self.peers) {
            (true, true) => "The certificates for clients and those between nodes are reloaded",
            (true, false) => "The certificates for clients are reloaded",
            (false, _) => "The certificates between nodes are reloaded",
        }
    }
}
