//! A check of the rows of an index query against the query.
//!
//! Rows come by term and then by key, each once, every term within the range; a page begins behind the one before.
//! Where terms are not told, that is known of the query of one term only, whose keys rise. Terms of an `_int` field are
//! compared as numbers, all others as bytes.
//!
//! A judge keeps the last row, nothing else: a query of any size is judged in constant memory.
//!
//! Left out: which objects a row may be about, and how many there must be. That is known to whoever wrote them.

use std::cmp::Ordering;

/// What a query asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The first term.
    pub from: &'a [u8],
    /// The last term.
    pub to: &'a [u8],
    /// Whether terms are integers.
    pub is_int: bool,
}

/// The rows of a query so far.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    count: u64,
    term: Vec<u8>,
    key: Vec<u8>,
}

impl Rows {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets them: the query is asked from its beginning.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Rows that nobody looks at.
    pub fn skip(&mut self, rows: u64) {
        self.count += rows;
    }

    /// The next row; its term if it was told.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(&mut self, asked: Asked<'_>, term: Option<&[u8]>, key: &[u8]) -> Result<(), &'static str> {
        let is_first = self.count == 0;
        self.count += 1;
        let judged = match term {
            Some(term) => self.told(asked, is_first, term, key),
            None if asked.from == asked.to && !is_first && *self.key >= *key => {
                Err("a key out of order, or twice")
            }
            None => Ok(()),
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.term.clear();
        self.term.extend_from_slice(term.unwrap_or_default());
        judged
    }

    fn told(&self, asked: Asked<'_>, is_first: bool, term: &[u8], key: &[u8]) -> Result<(), &'static str> {
        let order = |a, b| compare(asked.is_int, a, b).ok_or("a term that is no integer");
        if order(term, asked.from)?.is_lt() || order(term, asked.to)?.is_gt() {
            return Err("a term outside the queried range");
        }
        if is_first {
            return Ok(());
        }
        match compare(asked.is_int, &self.term, term).map(|order| order.then_with(|| (*self.key).cmp(key))) {
            Some(Ordering::Greater) => Err("a row out of order"),
            Some(Ordering::Equal) => Err("a row that was told before"),
            // What came before was no integer, and has been counted.
            Some(Ordering::Less) | None => Ok(()),
        }
    }
}

/// The order of two terms; `None` if one of them should be an integer and is not.
fn compare(is_int: bool, a: &[u8], b: &[u8]) -> Option<Ordering> {
    if !is_int {
        return Some(a.cmp(b));
    }
    Some(integer(a)?.cmp(&integer(b)?))
}

/// A term of an `_int` field.
pub fn integer(term: &[u8]) -> Option<i64> {
    std::str::from_utf8(term).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BIN: Asked<'_> = Asked { from: b"b", to: b"d", is_int: false };

    fn judged(asked: Asked<'_>, rows: &[(Option<&str>, &str)]) -> Result<(), &'static str> {
        let mut judge = Rows::default();
        rows.iter().try_for_each(|(term, key)| judge.take(asked, term.map(str::as_bytes), key.as_bytes()))
    }

    #[test]
    fn each_mistake_has_its_name() {
        let row = |term, key| (Some(term), key);
        assert_eq!(judged(BIN, &[row("b", "2"), row("b", "3"), row("c", "1"), row("d", "1")]), Ok(()));
        let outside = Err("a term outside the queried range");
        assert_eq!(judged(BIN, &[row("a", "1")]), outside);
        assert_eq!(judged(BIN, &[row("d0", "1")]), outside);
        assert_eq!(judged(BIN, &[row("b", "2"), row("b", "1")]), Err("a row out of order"));
        assert_eq!(judged(BIN, &[row("c", "2"), row("b", "3")]), Err("a row out of order"));
        assert_eq!(judged(BIN, &[row("c", "2"), row("c", "2")]), Err("a row that was told before"));
        let int = Asked { from: b"-5", to: b"100", is_int: true };
        assert_eq!(judged(int, &[row("-5", "k"), row("9", "k"), row("10", "k")]), Ok(()));
        assert_eq!(judged(int, &[row("10", "k"), row("9", "k")]), Err("a row out of order"));
        assert_eq!(judged(int, &[row("x", "k")]), Err("a term that is no integer"));
        assert_eq!(judged(int, &[row("101", "k")]), outside);
    }

    #[test]
    fn keys_of_one_term_rise() {
        let one = Asked { from: b"b", to: b"b", is_int: false };
        assert_eq!(judged(one, &[(None, "1"), (None, "2")]), Ok(()));
        assert_eq!(judged(one, &[(None, "2"), (None, "2")]), Err("a key out of order, or twice"));
        // Of a range, a key comes once for each of its terms.
        assert_eq!(judged(BIN, &[(None, "2"), (None, "1"), (None, "2")]), Ok(()));
    }

    proptest! {
        #[test]
        fn an_answer_is_right_if_it_is_the_sorted_set(
            rows in prop::collection::vec((-20i64..20, 0u8..5), 0..20),
            from in -20i64..20,
            len in 0i64..20,
        ) {
            let to = from + len;
            let (first, last) = (from.to_string(), to.to_string());
            let asked = Asked { from: first.as_bytes(), to: last.as_bytes(), is_int: true };
            let mut judge = Rows::default();
            let all_right = rows.iter().all(|(term, key)| judge.take(asked, Some(term.to_string().as_bytes()), &[*key]).is_ok());
            let sorted: Vec<_> = rows.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let is_within = rows.iter().all(|(term, _)| (from..=to).contains(term));
            prop_assert_eq!(all_right, sorted == rows && is_within);
        }
    }
}
