//! The figures of the house: how far the components of a node own their state, read from the source files.
//!
//! Parts: [`tree`] counts methods, circles of files, lines ([`code`]) and asserts, with the parser of [`source`];
//! [`get`] counts the files that a GET executes.

mod code;
mod get;
mod source;
mod tree;

use crate::figures::{self, Part, Set};

type Context = figures::Context<()>;

pub const SET: Set<()> = Set {
    name: "house",
    title: "The house",
    method: include_str!("../../method/house.md"),
    plans: [(), ()],
    needs_binary: false,
    quick_leaves_out: "quick: nothing is left out",
    parts: &[
        Part { name: "tree", specs: tree::specs, run: tree::run },
        Part { name: "get", specs: get::specs, run: get::run },
    ],
};
