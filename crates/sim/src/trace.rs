//! What happened in a world, line by line: a running hash, the text if somebody wants to read it, and a count
//! of the faults that fired. Two runs of one seed must agree in every byte of it.

use crate::clock::SimTime;
use crate::fault::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the text of a trace is kept beside its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The hash only: a run of many seeds.
    Hash,
    /// The text too: one seed that somebody wants to read.
    Text,
}

/// A handle to a world's one trace.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    time: SimTime,
    hash: u64,
    lines: u64,
    text: Option<String>,
    enabled: BTreeSet<Fault>,
    fired: BTreeMap<Fault, u64>,
}

impl Trace {
    /// An empty trace whose lines carry the time of `time`.
    pub fn new(time: SimTime, keep: Keep) -> Trace {
        let text = (keep == Keep::Text).then(String::new);
        let (enabled, fired) = (BTreeSet::new(), BTreeMap::new());
        Trace(Arc::new(Mutex::new(State { time, hash: FNV_OFFSET, lines: 0, text, enabled, fired })))
    }

    /// Writes one line.
    pub fn line(&self, what: fmt::Arguments<'_>) {
        self.lock().line(what);
    }

    /// Says that this world means to have `fault`.
    pub fn enable(&self, fault: Fault) {
        self.lock().enabled.insert(fault);
    }

    /// Counts `fault`, which has just fired, and writes a line of where.
    pub fn fault(&self, fault: Fault, what: fmt::Arguments<'_>) {
        let mut state = self.lock();
        *state.fired.entry(fault).or_default() += 1;
        state.line(format_args!("! {fault}: {what}"));
    }

    /// The hash of all lines so far.
    pub fn hash(&self) -> u64 {
        self.lock().hash
    }

    /// How many lines were written.
    pub fn lines(&self) -> u64 {
        self.lock().lines
    }

    /// The text so far; empty unless it was to be kept.
    pub fn text(&self) -> String {
        self.lock().text.clone().unwrap_or_default()
    }

    /// How often each fault fired.
    pub fn fired(&self) -> BTreeMap<Fault, u64> {
        self.lock().fired.clone()
    }

    /// How often `fault` fired.
    pub fn count(&self, fault: Fault) -> u64 {
        self.lock().fired.get(&fault).copied().unwrap_or(0)
    }

    /// The faults that were enabled and never fired.
    pub fn unfired(&self) -> Vec<Fault> {
        let state = self.lock();
        state.enabled.iter().filter(|fault| !state.fired.contains_key(fault)).copied().collect()
    }

    // A panic while holding this lock ends the world, so what its poison protects is of no more use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn line(&mut self, what: fmt::Arguments<'_>) {
        let micros = self.time.now().0 / 1000;
        self.lines += 1;
        writeln!(self, "{micros:>10} {what}").expect("writing to memory does not fail");
    }
}

/// FNV-1a, 64 bits: each byte counts, no buffer is needed, and no line is formatted twice.
const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

impl Write for State {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.hash =
            text.bytes().fold(self.hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        if let Some(kept) = &mut self.text {
            kept.push_str(text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_text() {
        let write = |keep, word: &str| {
            let trace = Trace::new(SimTime::default(), keep);
            trace.line(format_args!("one {word}"));
            (trace.hash(), trace.text())
        };
        assert_eq!(write(Keep::Text, "a").1, "         0 one a\n");
        assert_eq!(write(Keep::Hash, "a"), (write(Keep::Text, "a").0, String::new()));
        assert_ne!(write(Keep::Hash, "a").0, write(Keep::Hash, "b").0);
    }

    #[test]
    fn an_enabled_fault_must_fire() {
        let trace = Trace::new(SimTime::default(), Keep::Hash);
        trace.enable(Fault::Loss);
        trace.enable(Fault::Cut);
        trace.fault(Fault::Cut, format_args!("1 -> 2"));
        assert_eq!(trace.unfired(), [Fault::Loss]);
        assert_eq!(trace.fired(), BTreeMap::from([(Fault::Cut, 1)]));
    }
}
