//! Small made-up crates.

use super::*;
use std::collections::BTreeSet;

fn parse(files: &[(&str, &str)]) -> Crate {
    let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    Crate::parse(&texts.collect()).unwrap()
}

/// The arrows by the paths of files: `a.rs -> b.rs`.
fn arrows(parsed: &Crate) -> Vec<String> {
    let line = |from: FileId, to: FileId| format!("{} -> {}", parsed.path(from), parsed.path(to));
    let of_file = |(from, to): (FileId, BTreeSet<FileId>)| to.into_iter().map(move |to| line(from, to));
    let mut lines: Vec<String> = parsed.arrows().into_iter().flat_map(of_file).collect();
    lines.sort();
    lines
}

fn circles(parsed: &Crate) -> Vec<Vec<&str>> {
    let paths = |circle: BTreeSet<FileId>| {
        let mut paths: Vec<&str> = circle.into_iter().map(|file| parsed.path(file)).collect();
        paths.sort_unstable();
        paths
    };
    parsed.circles().into_iter().map(paths).collect()
}

#[test]
fn import_through_reexports_leads_to_definition() {
    let parsed = parse(&[
        ("lib.rs", "pub mod peer;\nmod shard;\npub use peer::Frame as Packet;"),
        ("peer/mod.rs", "mod codec;\npub use codec::{Frame, encode};\npub use other::Unit;"),
        ("peer/codec.rs", "pub struct Frame;\npub fn encode() {}"),
        ("shard.rs", "use crate::{Packet, peer::{self, Unit}};\nfn f() { peer::encode(); }"),
    ]);
    // The facade has an arrow only from the import of the module itself.
    assert_eq!(arrows(&parsed), ["shard.rs -> peer/codec.rs", "shard.rs -> peer/mod.rs"]);
}

#[test]
fn reexport_is_an_arrow_where_its_module_uses_the_name() {
    let facade = "mod a;\npub use a::A;";
    let user = "mod a;\npub use a::A;\npub struct B(A);";
    let child = ("a.rs", "pub struct A;");
    assert!(arrows(&parse(&[("lib.rs", facade), child])).is_empty());
    assert_eq!(arrows(&parse(&[("lib.rs", user), child])), ["lib.rs -> a.rs"]);
}

#[test]
fn child_sees_private_imports_and_items_of_parent() {
    let parsed = parse(&[
        ("lib.rs", "mod a;\nmod b;\nuse b::Inner;\nstruct Own(Inner);"),
        ("a.rs", "use super::Inner;\nfn f(_: super::Own) {}"),
        ("b.rs", "pub struct Inner;"),
    ]);
    assert_eq!(arrows(&parsed), ["a.rs -> b.rs", "a.rs -> lib.rs", "lib.rs -> b.rs"]);
}

#[test]
fn glob_reexport_leads_to_definition() {
    let parsed = parse(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::*;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::A;\nuse crate::Missing;"),
    ]);
    assert_eq!(arrows(&parsed), ["b.rs -> a.rs", "b.rs -> lib.rs"]);
}

#[test]
fn paths_of_macro_calls_and_bodies_are_arrows() {
    let parsed = parse(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "pub fn f() -> bool { true }\npub struct A;"),
        ("b.rs", "fn g() { assert!(crate::a::f(), \"{}\", 1); }"),
        ("c.rs", "fn g() { use super::b as other; let _: super::a::A; other::g(); }"),
    ]);
    assert_eq!(arrows(&parsed), ["b.rs -> a.rs", "c.rs -> a.rs", "c.rs -> b.rs"]);
}

#[test]
fn names_of_other_crates_and_import_loops_lead_nowhere() {
    let parsed = parse(&[
        ("lib.rs", "mod a;\nmod object;\nuse a::Loop;"),
        ("a.rs", "pub use super::Loop;\nuse ::object::Key;\nuse std::fmt;\nfn f(_: fmt::Error) {}"),
        ("object.rs", "pub struct Key;"),
    ]);
    assert!(arrows(&parsed).is_empty());
}

#[test]
fn module_within_a_file_is_no_arrow() {
    let parsed = parse(&[
        ("lib.rs", "mod a { pub mod b { pub struct B; }\n pub mod c; }\nuse a::b::B;"),
        ("a/c.rs", "use super::b::B;"),
    ]);
    assert_eq!(arrows(&parsed), ["a/c.rs -> lib.rs"]);
}

#[test]
fn circles_are_found_with_the_largest_first() {
    let parsed = parse(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\nmod f;\npub use a::A;"),
        ("a.rs", "use crate::b::B;\npub struct A;"),
        ("b.rs", "use crate::c::C;\npub struct B;"),
        // Through the facade: the circle is of three files, not of four.
        ("c.rs", "use crate::A;\nuse crate::d::D;\npub struct C;"),
        ("d.rs", "use crate::e::E;\npub struct D;"),
        ("e.rs", "use crate::d::D;\npub struct E;"),
        ("f.rs", "use crate::A;"),
    ]);
    assert_eq!(circles(&parsed), [vec!["a.rs", "b.rs", "c.rs"], vec!["d.rs", "e.rs"]]);
}

#[test]
fn methods_are_counted_over_blocks_in_several_files() {
    let parsed = parse(&[
        ("lib.rs", "mod shard;\nmod other;\npub use shard::Shard;"),
        (
            "shard/mod.rs",
            "mod gifts;\npub struct Shard;\nimpl Shard { pub fn new() {} fn a(&self) {} pub(crate) fn b(&self) {} }",
        ),
        (
            "shard/gifts.rs",
            "use super::Shard;\nimpl Shard { pub fn c(&self) {} #[cfg(test)] fn d(&self) {} }\n\
             impl Clone for Shard { fn clone(&self) {} }\n#[cfg(test)] impl Shard { fn e() {} }",
        ),
        ("other.rs", "pub enum Shard { A }\nimpl Shard { fn f() {} }"),
    ]);
    let methods = parsed.methods();
    let shard = methods.iter().find(|it| it.kind == Some(Kind::Struct)).unwrap();
    assert_eq!((shard.name.as_str(), parsed.path(shard.file)), ("Shard", "shard/mod.rs"));
    assert_eq!((shard.all, shard.public), (4, 2));
    let by_file: Vec<_> = shard.files.iter().map(|(&file, &count)| (parsed.path(file), count)).collect();
    assert_eq!(by_file, [("shard/mod.rs", 3), ("shard/gifts.rs", 1)]);
    let other = methods.iter().find(|it| it.kind == Some(Kind::Enum)).unwrap();
    assert_eq!((methods.len(), other.all, other.public), (2, 1, 0));
}

#[test]
fn length_of_a_function_is_from_signature_to_closing_brace() {
    let text = "/// A comment.\n#[inline]\npub fn long(\n    a: u8,\n) {\n    fn inner() {\n    }\n    // Why.\n}\n\
                trait T {\n    fn required();\n    fn provided() {\n    }\n}\n\
                #[cfg(all(test, unix))]\nfn of_tests() {\n\n\n\n\n\n\n\n\n\n}\n";
    let parsed = parse(&[("lib.rs", text)]);
    let lengths: Vec<_> = parsed.functions().map(|(_, it)| (it.name.as_str(), it.line, it.lines)).collect();
    assert_eq!(lengths, [("long", 3, 7), ("inner", 6, 2), ("provided", 12, 2)]);
}

#[test]
fn tests_have_no_lines_and_no_asserts() {
    let text = "const _: () = assert!(1 < 2);\n\
                fn f() {\n    debug_assert_eq!(1, 1);\n    wrap!({ assert!(true) });\n}\n\
                impl S {\n    #[cfg(test)]\n    fn g() {\n        assert!(true);\n    }\n}\nstruct S;\n\
                #[cfg(test)]\nmod tests {\n    fn h() {\n        assert!(true);\n    }\n}\n\
                #[cfg(not(test))]\nfn i() {\n    assert_ne!(1, 2);\n}\nmod loom_tests;\nmod testing;\n";
    let parsed = parse(&[("lib.rs", text)]);
    // 24 lines, of which four and six are of tests.
    assert_eq!((parsed.asserts(), parsed.lines()), (4, 14));
}

#[test]
fn file_that_is_missing_or_wrong_is_named() {
    let error = |files: &[(&str, &str)]| {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Crate::parse(&texts.collect()).err().unwrap().to_string()
    };
    assert_eq!(error(&[("lib.rs", "mod a;")]), "a/mod.rs is missing");
    assert!(error(&[("lib.rs", "mod a;"), ("a.rs", "fn")]).starts_with("a.rs: "));
}
