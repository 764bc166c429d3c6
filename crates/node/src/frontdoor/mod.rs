//! Requests of clients on their way in: admission, pacing of writes, and the clean stop; latencies on their way out.

pub(crate) mod admission;
pub(crate) mod latency;
pub(crate) mod pacing;
pub(crate) mod stop;

use crate::hop::RequestId;
use crate::shard::env::Env;
use admission::Admission;
use pacing::Pacer;
use stop::CleanStop;

/// The way in of a shard.
#[derive(Default)]
pub(crate) struct Frontdoor {
    /// Requests that are not begun yet.
    pub admission: Admission,
    /// Writes that are held back, as the store asks for.
    pub pacer: Pacer,
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
        self.stop.invariants(env);
    }
}
