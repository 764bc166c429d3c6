//! Requests of clients on their way in: admission, pacing of writes, forwards to other nodes, and the clean stop;
//! latencies and the log of slow requests on their way out.

pub(crate) mod admission;
pub(crate) mod forwards;
pub(crate) mod latency;
pub(crate) mod pacing;
pub(crate) mod slow;
pub(crate) mod stop;

use crate::hop::RequestId;
use crate::shard::env::Env;
use admission::Admission;
use forwards::Forwards;
use pacing::Pacer;
use stop::CleanStop;

/// The way in of a shard.
#[derive(Default)]
pub(crate) struct Frontdoor {
    /// Requests that are not begun yet.
    pub admission: Admission,
    /// Writes that are held back, as the store asks for.
    pub pacer: Pacer,
    /// Requests that other nodes coordinate.
    pub forwards: Forwards,
    /// The clean stop.
    pub stop: CleanStop,
}

impl Frontdoor {
    /// Forgets a request whose client is gone.
    pub fn forget(&mut self, env: &mut Env, id: RequestId) {
        self.admission.forget(id, &mut env.gauges);
        self.pacer.forget(id, &mut env.gauges);
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        self.admission.invariants(env);
        self.pacer.invariants(env);
        self.forwards.invariants(env);
        self.stop.invariants(env);
    }
}
