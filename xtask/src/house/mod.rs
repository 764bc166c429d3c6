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

const METHOD: &str = "\
Source files are parsed, and tests are left out: items under `cfg(test)`, and the files `tests.rs`, `*_tests.rs` and
`testing.rs`. Macros are not expanded.

* Methods of a type: all functions in its inherent `impl` blocks, in all files, those without `self` too. Public ones
  are `pub` without a restriction. A component is any struct of crate `node` but `Shard`.
* A file uses another one of its crate if an import or a written-out path in it leads there. Re-exports are followed to
  the file of the definition; a re-export alone is no use. A circle is a strongly connected component of these arrows.
  Its value is its number of files, and 1 if there is no circle.
* The length of a function is from the line of its signature to that of its closing brace.
* Asserts are `assert!`, `debug_assert!` and their forms of two values. Lines include comments and blank ones.
* Lines of code: of all crates, `xtask` and `fuzz`, without blank lines, comments, tests and examples.
* Files of a GET: source files in `crates/*/src` of which callgrind counts an instruction. The run is the case
  `shard.get` of `cargo xtask micro`: 2,000 GETs of a node alone with 4,000 objects, from frame to frame, without
  sockets. Its setup is not counted, nor is code that the compiler made and that has no source line. The build is that
  for use, with line tables, so that an inlined function keeps its file. Lines are those of whole files.";

type Context = figures::Context<()>;

const SET: Set<Part, ()> = Set {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
