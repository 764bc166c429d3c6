use super::*;
use base::Rng;
use base::rng::SplitMix64;

const SCOPE: Scope = Scope { partitions: 16, n_vals: 7 };

fn id(first: u16, n_val: u32) -> TreeId {
    TreeId { first, n_val, day: 0 }
}

/// Records of random lives of trees say what the trees are, one by one and joined.
#[test]
fn records_say_what_trees_are() {
    for seed in 0..20 {
        let mut rng = SplitMix64::new(seed);
        let mut trees = Checkpoint { scope: SCOPE, ..Checkpoint::default() };
        let mut records = vec![trees.record()];
        for _ in 0..30 {
            let mut out = RecordWriter::new(SCOPE, false);
            let first = u16::try_from(rng.next_u64() % 4).unwrap();
            let day = u32::try_from(rng.next_u64() % 2).unwrap() * 20_000;
            let id = TreeId { day, ..id(first, 3) };
            match rng.next_u64() % 4 {
                0 => {
                    out.gone(first);
                    trees.forget(first);
                }
                1 => {
                    let mut tree = Tree::new(9);
                    (0..20)
                        .for_each(|_| tree.change(rng.next_u64() as u32, None, Some(rng.next_u64() as u32)));
                    out.came(first);
                    out.tree(id, &tree, false);
                    trees.forget(first);
                    trees.whole.insert(first);
                    trees.trees.insert(id, (tree, false));
                }
                _ if trees.whole.contains(&first) => {
                    let (tree, unsure) = trees.trees.entry(id).or_default();
                    let mut delta = Delta::default();
                    for _ in 0..10 {
                        let (place, new) = (rng.next_u64() as u32, rng.next_u64() as u32);
                        tree.change(place, None, Some(new));
                        delta.change(place, None, Some(new), seed == 7);
                        *unsure |= seed == 7;
                    }
                    out.delta(id, &delta);
                }
                _ => {}
            }
            records.push(out.finish());
            assert_eq!(Checkpoint::of(&records).as_ref(), Some(&trees));
            if rng.next_u64().is_multiple_of(5) {
                records = vec![join(&records).unwrap()];
                assert_eq!(Checkpoint::of(&records).as_ref(), Some(&trees));
            }
        }
    }
}

#[test]
fn a_tree_that_has_become_empty_is_not_there() {
    let mut out = RecordWriter::new(SCOPE, true);
    out.came(0);
    let mut tree = Tree::default();
    tree.change(5, None, Some(9));
    out.tree(id(0, 3), &tree, true);
    let mut later = RecordWriter::new(SCOPE, false);
    let mut delta = Delta::default();
    delta.change(5, Some(9), None, false);
    later.delta(id(0, 3), &delta);
    let all = Checkpoint::of(&[out.finish(), later.finish()]).unwrap();
    assert!(all.trees.is_empty() && all.whole.contains(&0));
}

#[test]
fn what_is_none_of_ours_is_not_taken() {
    let whole = Checkpoint { scope: SCOPE, ..Checkpoint::default() }.record();
    let other = RecordWriter::new(Scope { partitions: 32, ..SCOPE }, false).finish();
    let mut stranger = RecordWriter::new(SCOPE, false);
    stranger.delta(id(0, 3), &Delta::default());
    assert_eq!(Checkpoint::of(&[]), None);
    assert_eq!(Checkpoint::of(&[whole.clone(), other.clone()]), None, "of another ring");
    assert_eq!(Checkpoint::of(&[other]), None, "nothing before it");
    assert_eq!(Checkpoint::of(&[whole, stranger.finish()]), None, "of a partition without trees");
}

/// As the page says; the bytes were made by hand.
#[test]
fn a_record_is_as_its_page_says() {
    let mut tree = Tree::new(7);
    tree.change(0xFFFF_FFFF, None, Some(0x0403_0201));
    let mut delta = Delta::default();
    delta.change(6, None, Some(0x0F), true);
    let mut out = RecordWriter::new(SCOPE, true);
    out.gone(9);
    out.came(0x0102);
    out.tree(id(0x0102, 3), &tree, false);
    let ends = TreeId { day: 20_010, ..id(0x0102, 5) };
    out.delta(ends, &delta);
    let mut golden = b"\x03\0\0\0\x10\0\0\0\x07\0\0\0\x00\x01\x09\0\x02\x02\x01".to_vec();
    golden.extend(b"\x03\x02\x01\x03\0\0\0\0\0\0\0\0\x07\x01\0\0\0\0\0\0\0\x01\0\0\0\x03\0\0\0");
    golden.extend([0; 31 * 4]);
    golden.extend(b"\x01\x02\x03\x04");
    // Columns: the same segment of as many.
    golden.extend(b"\x01\0\0\0\x03\0\0\0");
    golden.extend([0; 31 * 4]);
    golden.extend(b"\x01\x02\x03\x04");
    golden.extend(b"\x04\x02\x01\x05\0\0\0\x2a\x4e\0\0\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\x06\0\0\0\x0f\0\0\0");
    let record = out.finish();
    assert_eq!(record, golden);
    let all = Checkpoint::of(std::slice::from_ref(&record)).unwrap();
    assert_eq!(all.trees[&id(0x0102, 3)], (tree, false));
    let (other, unsure) = &all.trees[&ends];
    assert_eq!((other.root(), other.keys(), *unsure), (0x0F, 1, true));
    for end in 13..golden.len() {
        // A part that is cut is none; between parts a shorter record is one, too.
        let cut = Checkpoint::of(&[record.slice(..end)]);
        assert_eq!(cut.is_some(), [13, 16, 19, 312].contains(&end), "{end}");
    }
}

/// Of versions before, which have no columns, all trees are made anew.
#[test]
fn a_record_without_columns_is_not_taken() {
    for version in [1, 2] {
        let mut old = vec![version, 0, 0, 0];
        old.extend(b"\x10\0\0\0\x07\0\0\0\x00\x02\x02\x01");
        assert_eq!(Checkpoint::of(&[Bytes::from(old)]), None);
    }
}
