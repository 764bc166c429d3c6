//! The registration of this process with the birth of this shard's store. Without it the store takes part in no group.

use ring::Birth;

use crate::shard::env::Env;

/// A change of the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistrationChange {
    /// The store may take part from now on.
    Begins,
    /// The store is another voter, or none.
    Ends,
}

/// The registration of the store, as of the agreement that was taken last.
#[derive(Default)]
pub(super) struct Registration {
    is_in_force: bool,
    /// The birth that this was decided for.
    birth: Option<Birth>,
    /// The birth under which groups were left last. Their states are removed, so it takes no part again.
    left: Option<Birth>,
}

impl Registration {
    /// Whether the process is registered with the store's birth.
    pub fn is_in_force(&self) -> bool {
        self.is_in_force
    }

    /// The birth that it was decided for.
    pub fn birth(&self) -> Option<Birth> {
        self.birth
    }

    /// Compares it with the agreement.
    pub fn follow(&mut self, env: &Env) -> Option<RegistrationChange> {
        let here = env.agreement.processes.get(&env.peers.here());
        let own = here.filter(|process| process.life == env.peers.life());
        let birth = own.and_then(|process| process.stores.births.get(usize::from(env.knobs.id.0)).copied());
        let is_in_force = birth.is_some() && birth == env.birth && birth != self.left;

        let was_in_force = std::mem::replace(&mut self.is_in_force, is_in_force);
        let before = std::mem::replace(&mut self.birth, env.birth);
        match (was_in_force, is_in_force) {
            (true, false) => {
                self.left = before;
                Some(RegistrationChange::Ends)
            }
            (false, true) => Some(RegistrationChange::Begins),
            _ => None,
        }
    }
}
