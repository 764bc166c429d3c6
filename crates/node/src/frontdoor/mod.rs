//! Requests of clients on their way in: admission, pacing of writes, the clean stop, and latency.

pub(crate) mod admission;
pub(crate) mod latency;
pub(crate) mod pacing;
pub(crate) mod stop;
