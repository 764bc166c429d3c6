//! The figures of the house: how far the components of a node own their state, read from the source files.
//!
//! Parts: [`tree`] counts methods, circles of files, lines ([`code`]) and asserts, with the parser of [`source`];
//! [`get`] counts the files that a GET executes.

mod code;
mod get;
mod source;
mod tree;

use crate::Result;
use crate::figures::{self, Options, Part as Run, Set};
use clap::ValueEnum;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Counts of the source files.
    Tree,
    /// Files that a GET executes.
    Get,
}

const METHOD: &str = include_str!("../../method/house.md").trim_ascii_end();

type Context = figures::Context<()>;

pub const SET: Set<Part, ()> = Set {
    name: "house",
    title: "The house",
    method: METHOD,
    needs_binary: false,
    quick_leaves_out: "quick: nothing is left out",
    parts: &[
        Run { name: Part::Tree, specs: tree::specs, run: tree::run },
        Run { name: Part::Get, specs: get::specs, run: get::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options<Part>) -> Result<()> {
    SET.run([(), ()], options, "")
}
