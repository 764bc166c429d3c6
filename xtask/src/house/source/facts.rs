//! The facts of a module's items: imports, paths, functions, asserts, `impl` blocks. Tests are left out.
//!
//! Of the tokens of a macro call, paths and asserts are taken: nothing more is known of them.

use super::scope::{Import, Path};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItem, Item, Signature, TraitItem, Type, Visibility};
use words::{attributes, is_test};

/// The macros that check an invariant.
const ASSERTS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// The facts of a module, without its submodules.
#[derive(Default)]
pub struct Facts {
    /// Imports, those of function bodies too.
    pub imports: Vec<Import>,
    /// Paths of two segments and more outside imports.
    pub paths: Vec<Path>,
    /// All identifiers outside imports.
    pub idents: BTreeSet<String>,
    /// Functions with a body, those of traits and of other functions too.
    pub functions: Vec<Function>,
    /// Asserts, those of constants too.
    pub asserts: usize,
    /// Inherent `impl` blocks.
    pub impls: Vec<Impl>,
    /// Lines of items that only tests have.
    pub test_lines: usize,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// The line at which its signature begins.
    pub line: usize,
    /// From there to the closing brace.
    pub lines: usize,
}

/// An inherent `impl` block.
pub struct Impl {
    /// The path of its type.
    pub type_path: Path,
    /// Its functions, those without `self` too.
    pub methods: usize,
    /// Those of them that are `pub`.
    pub public: usize,
}

impl Facts {
    fn take_function(&mut self, signature: &Signature, body: &Block) {
        let line = signature.span().start().line;
        let lines = body.brace_token.span.close().end().line - line + 1;
        self.functions.push(Function { name: signature.ident.to_string(), line, lines });
    }

    /// Whether tests alone have an item, whose lines are then theirs.
    fn is_of_tests(&mut self, attributes: &[Attribute], item: &impl Spanned) -> bool {
        let is_test = is_test(attributes);
        if is_test {
            self.test_lines += lines_of(item);
        }
        is_test
    }

    fn take_tokens(&mut self, tokens: TokenStream) {
        let (mut segments, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.take_path(&mut segments);
                    }
                    segments.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    let is_call = matches!(&other, TokenTree::Punct(punct) if punct.as_char() == '!');
                    let is_named = segments.last().is_some_and(|name: &String| is_assert(name));
                    self.asserts += usize::from(is_call && is_named);
                    self.take_path(&mut segments);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.take_tokens(group.stream());
                    }
                }
            }
        }
        self.take_path(&mut segments);
    }

    fn take_path(&mut self, segments: &mut Vec<String>) {
        self.idents.extend(segments.iter().cloned());
        if segments.len() > 1 {
            self.paths.push(Path::new(segments.iter()));
        }
        segments.clear();
    }
}

impl<'ast> Visit<'ast> for Facts {
    fn visit_item(&mut self, item: &'ast Item) {
        if !self.is_of_tests(attributes(item), item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs[..],
            ImplItem::Fn(item) => &item.attrs,
            _ => &[],
        };
        if !self.is_of_tests(attributes, item) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes = match item {
            TraitItem::Fn(item) => &item.attrs[..],
            _ => &[],
        };
        if !self.is_of_tests(attributes, item) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.imports.extend(Import::all_of(item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, Type::Path(path)) = (&item.trait_, &*item.self_ty) {
            let functions = item.items.iter().filter_map(|item| match item {
                ImplItem::Fn(function) if !is_test(&function.attrs) => Some(&function.vis),
                _ => None,
            });
            let functions: Vec<&Visibility> = functions.collect();
            let public = functions.iter().filter(|it| matches!(it, Visibility::Public(_))).count();
            self.impls.push(Impl { type_path: (&path.path).into(), methods: functions.len(), public });
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.take_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.take_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.take_function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.into());
        }
        visit::visit_path(self, path);
    }

    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.idents.insert(ident.to_string());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        self.asserts += usize::from(name.is_some_and(|name| is_assert(&name)));
        visit::visit_macro(self, call);
        self.take_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    /// `pub(in path)` is no use of the path.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

impl From<&syn::Path> for Path {
    fn from(path: &syn::Path) -> Path {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        Path { is_global: path.leading_colon.is_some(), segments: segments.collect() }
    }
}

fn is_assert(name: &str) -> bool {
    ASSERTS.contains(&name)
}

/// The lines that an item and its attributes take.
pub fn lines_of(item: &impl Spanned) -> usize {
    let span = item.span();
    span.end().line - span.start().line + 1
}
