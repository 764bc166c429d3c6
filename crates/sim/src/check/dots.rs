//! A dot means one write for ever, whatever crashes come between. Those of keys that are written once are events of one
//! actor in each key: there a dot means one write of the key.

use super::history::KeyName;
use super::siblings::Shown;
use super::{Verdict, Violation};
use object::Dot;
use std::collections::BTreeMap;

const CHECKER: &str = "a dot is used once";

/// What every dot that was ever shown means.
#[derive(Debug, Default)]
pub struct Dots(BTreeMap<(Option<KeyName>, Dot), (KeyName, Option<u64>)>);

impl Dots {
    /// Checks and remembers the dots of an answer.
    pub(super) fn check(&mut self, key: &KeyName, shown: &Shown) -> Verdict {
        let values = shown.numbers.iter().filter_map(|(dot, number)| dot.map(|dot| (dot, Some(*number))));
        let tombstones = shown.tombstones.iter().map(|dot| (*dot, None));
        for (dot, meaning) in values.chain(tombstones) {
            let meaning = (key.clone(), meaning);
            let place = key.is_of_clocks().then(|| key.clone());
            let known = self.0.entry((place, dot)).or_insert_with(|| meaning.clone());
            if *known != meaning {
                let (Dot { actor, counter }, before) = (dot, known);
                let what = format!("{:x}.{counter} is {meaning:?} and was {before:?}", actor.0);
                return Err(Violation::new(CHECKER, what));
            }
        }
        Ok(())
    }
}
