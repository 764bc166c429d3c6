//! Texts in a source file that people see. Tests are left out.
//!
//! * Help: comments and attributes of types that derive a trait of clap, and comments in the table `settings!`.
//! * Messages: other literals of three words and more. So they include `#[error("...")]`, log lines, and texts of
//!   `format!`, `println!` and the like. Panics are left out: arguments of `expect`, of asserts, `panic!` and
//!   `unreachable!`.
//!
//! A placeholder in braces counts as no word.

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, LitStr, Meta, Token};

/// Derived traits of types with help.
const CLAP: [&str; 4] = ["Parser", "Args", "Subcommand", "ValueEnum"];
/// Macros and methods with texts that only a panic shows.
const PANICS: [&str; 4] = ["panic", "unreachable", "expect", "expect_err"];

/// Lines of texts and their numbers.
#[derive(Default)]
pub struct Texts {
    pub help: Vec<(usize, String)>,
    pub messages: Vec<(usize, String)>,
    is_clap: bool,
}

impl Texts {
    /// Those of a file's text.
    pub fn of(text: &str) -> syn::Result<Texts> {
        let mut texts = Texts::default();
        texts.visit_file(&syn::parse_file(text)?);
        Ok(texts)
    }

    /// Takes a text. A message has at least three words.
    fn take(&mut self, text: &LitStr, is_help: bool) {
        let (at, value) = (text.span().start().line, text.value());
        let line: String = value.split(['{', '}']).step_by(2).collect();
        let is_word = |word: &&str| {
            !word.is_empty() && word.chars().all(|it| it.is_alphabetic() || ".,:;'".contains(it))
        };

        if is_help {
            // Comments of lines that follow each other are one text.
            let is_new = self.help.last().is_none_or(|(last, _)| last + 1 != at);
            self.help.extend(is_new.then(|| (at, String::new())));
            self.help.push((at, line.trim().to_owned()));
        } else if line.split(' ').filter(is_word).count() > 2 {
            self.messages.extend([(at, line.replace('\n', " ").trim().to_owned()), (at, String::new())]);
        }
    }

    /// Takes the literals of a macro or an attribute. Comments among them are help in a table of options, and nothing
    /// elsewhere.
    fn take_tokens(&mut self, tokens: TokenStream, is_help: bool) {
        let (mut before, mut is_doc) = (String::new(), false);
        for token in tokens {
            match token {
                TokenTree::Group(group) if !is_panic(before.trim_end_matches('!')) => {
                    self.take_tokens(group.stream(), is_help)
                }
                TokenTree::Literal(literal) => {
                    if let (Ok(text), true) =
                        (syn::parse_str::<LitStr>(&literal.to_string()), is_help || !is_doc)
                    {
                        let text = LitStr::new(&text.value(), literal.span());
                        self.take(&text, is_doc || is_help && self.is_clap);
                    }
                }
                other => {
                    let is_mark = matches!(other, TokenTree::Punct(_));
                    is_doc = other.to_string() == "doc" || is_doc && is_mark;
                    before = if is_mark { before + &other.to_string() } else { other.to_string() };
                }
            }
        }
    }
}

/// Whether an attribute derives a trait of clap.
fn derives_clap(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let derived = list.tokens.to_string();
    list.path.is_ident("derive") && CLAP.iter().any(|name| derived.contains(name))
}

fn is_panic(name: &str) -> bool {
    PANICS.contains(&name) || name.contains("assert")
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            self.is_clap = attributes(item).iter().any(derives_clap);
            visit::visit_item(self, item);
            self.is_clap = false;
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::NameValue(doc) if self.is_clap && doc.path.is_ident("doc") => {
                if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &doc.value {
                    self.take(text, true);
                }
            }
            Meta::List(list) if self.is_clap || list.path.is_ident("error") => {
                self.take_tokens(list.tokens.clone(), self.is_clap);
            }
            _ => {}
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if !is_panic(&name) && name != "macro_rules" {
            self.take_tokens(call.tokens.clone(), name == "settings");
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_panic(&call.method.to_string()) {
            return self.visit_expr(&call.receiver);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.take(text, false);
    }
}

/// Whether a file of this name, without `.rs`, has tests or code that only tests use.
pub fn is_test_file(name: &str) -> bool {
    name == "tests" || name == "testing" || name.ends_with("_tests")
}

/// Whether attributes leave an item to tests.
pub fn is_test(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|it| it.parse_args::<Meta>().ok()).any(|condition| needs_test(&condition))
}

/// Whether a condition holds in tests only.
fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let Ok(inner) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return false;
    };
    if list.path.is_ident("all") {
        inner.iter().any(needs_test)
    } else {
        list.path.is_ident("any") && !inner.is_empty() && inner.iter().all(needs_test)
    }
}

/// The attributes of an item; none of kinds that no test has.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
