//! What nodes ask each other about trees of hashes, and what they answer.

use super::field::{record, variants};
use kv::aae::{KeyPage, TreeAnswer, TreeAsk, TreeId};

record!(TreeId { first, n_val });
record!(KeyPage { keys, next });

variants!(TreeAsk, "no question about trees" {
    1 Roots { roots: roots },
    2 Groups { tree: tree, bits: bits, groups: groups },
    3 Keys { tree: tree, bits: bits, segments: segments, from: start },
});

variants!(TreeAnswer, "no answer about trees" {
    1 Roots { differ: differ, others: others },
    2 Groups { bits: bits, differ: differ },
    3 Keys { 0: page },
});
