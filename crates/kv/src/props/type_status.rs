//! How far a bucket type is.

/// How far a bucket type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeStatus {
    /// It is there, but not every node can be reached.
    Created,
    /// It is there and may be activated.
    Ready,
    /// It can be used.
    Active,
}

impl std::fmt::Display for TypeStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TypeStatus::Created => "created",
            TypeStatus::Ready => "ready",
            TypeStatus::Active => "active",
        })
    }
}
