//! The words of a security command: refused, or planned on a policy, which takes the changes or refuses them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use security::{Command, Credential, Policy, Slots};

fuzz_target!(|text: &str| {
    let mut slots = Slots::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let Ok(command) = Command::parse(&words) else { continue };
        let credential = command.password().map(|_| Credential::Argon2id("hash".into()));
        let Ok(changes) = command.plan(&slots, credential) else { continue };
        // A policy beyond its bounds stays as it was.
        slots.apply(&changes).ok();
    }
    Policy::compile(&slots, 1);
});
