//! The known name that somebody may have meant.

/// The name in `known` that differs least from `name`: by a third of its characters at most, and by case or
/// underscores for dashes not at all.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_").chars().collect::<Vec<char>>();
    let name = plain(name);
    let distances = known.into_iter().map(|known| (distance(&name, &plain(known)), known));
    let (distance, found) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.len() / 3).then_some(found)
}

/// How many characters must be inserted, left out, replaced, or swapped with their neighbour, to make one of the other.
fn distance(from: &[char], to: &[char]) -> usize {
    // Rows of the usual table: before the last one, the last one, and the one being made.
    let mut earlier = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (at, &c) in from.iter().enumerate() {
        let mut row = vec![at + 1];
        for (column, &other) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(c != other);
            let mut least = replaced.min(last[column + 1] + 1).min(row[column] + 1);
            if at > 0 && column > 0 && c == to[column - 1] && from[at - 1] == other {
                let before: &Vec<usize> = &earlier;
                least = least.min(before[column - 1] + 1);
            }
            row.push(least);
        }
        earlier = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["pb_listen", "ring_size", "shards", "data", "http_listen"];
        for (name, meant) in [
            ("ring-size", "ring_size"),
            ("RingSize", "ring_size"),
            ("shard", "shards"),
            ("dtaa", "data"),
            ("pb_listne", "pb_listen"),
            ("htp_listen", "http_listen"),
        ] {
            assert_eq!(closest(name, known), Some(meant), "{name}");
        }
        for name in ["", "x", "ab", "xyz", "replication", "port"] {
            assert_eq!(closest(name, known), None, "{name}");
        }
        assert_eq!(closest("data", []), None);
    }
}
