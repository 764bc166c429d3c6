//! What can go wrong with a request.

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered an error; the connection goes on, unless the server chooses to close it.
    #[error("{0}")]
    Server(String),
    /// The connection failed or timed out: whether a write took effect is not known.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    /// The server's bytes are not the protocol, the request is not one that can be sent, or an earlier
    /// error has left the connection dead.
    #[error("protocol: {0}")]
    Protocol(String),
}
