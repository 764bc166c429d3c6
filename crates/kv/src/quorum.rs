//! Quorum parameters of requests and buckets.

/// A quorum parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quorum {
    /// What the bucket's properties say.
    #[default]
    Default,
    /// One reply.
    One,
    /// More than half of the replicas.
    Quorum,
    /// Every replica.
    All,
    /// This many replies.
    Exactly(u32),
}

impl Quorum {
    /// This, or `other` if this says nothing.
    pub fn or(self, other: Quorum) -> Quorum {
        if self == Quorum::Default { other } else { self }
    }

    /// The number of replies out of `n`. `Default` counts as a majority: properties say something else first.
    pub fn count(self, n: u32) -> u32 {
        match self {
            Quorum::One => 1,
            Quorum::Default | Quorum::Quorum => n / 2 + 1,
            Quorum::All => n,
            Quorum::Exactly(count) => count,
        }
    }
}
