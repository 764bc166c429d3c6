//! Bugs planted in a large cluster are caught, within a bounded number of seeds, and the same seeds pass without them.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use sim::Kind;
use sim::elastic::Shape;

fn is_caught(bug: Planted) {
    planting::is_caught(Kind::Elastic(Shape { nodes: 9, partitions: 64 }), bug);
}

#[test]
fn switched_uncopied() {
    is_caught(Planted::SwitchedUncopied);
}

#[test]
fn copy_counted_twice() {
    is_caught(Planted::CopyCountedTwice);
}
