//! Counted nouns.

/// So many of it: `1 node`, `2 nodes`.
pub fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// As [`count`], of a number that is at hand as a length.
pub fn len(number: usize, noun: &str) -> String {
    count(number as u64, noun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone() {
        assert_eq!(["node", "key"].map(|noun| count(1u64, noun)), ["1 node", "1 key"]);
        assert_eq!([0, 2].map(|number| len(number, "node")), ["0 nodes", "2 nodes"]);
    }
}
