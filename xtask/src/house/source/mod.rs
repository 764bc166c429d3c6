//! A crate as its source files say it: modules, names, functions. All of it is a function of the files' text.
//!
//! 1. [`Crate::parse`] follows the `mod` declarations from `lib.rs`, and takes the [`facts`] of each module. It leaves
//!    tests out: items under `cfg(test)`, and the files `tests.rs`, `*_tests.rs` and `testing.rs`.
//! 2. [`scope`] resolves paths to definitions, through imports and re-exports.
//! 3. [`arrows`] says which file uses which, [`circles`] which files use each other.
//! 4. [`Crate::methods`] counts the methods of each type over its `impl` blocks in all modules.
//!
//! Left out: macros are not expanded. A name that only a macro defines belongs to the file of its module.

mod arrows;
mod circles;
mod facts;
mod scope;
#[cfg(test)]
mod tests;

use crate::Result;
pub use arrows::Arrows;
pub use facts::Function;
use facts::{Facts, lines_of};
pub use scope::Kind;
use scope::{Binding, Definition, Names};
use std::collections::BTreeMap;
use syn::Item;
use syn::visit::Visit;
use words::{attributes, is_test, is_test_file};

/// The index of a file.
pub type FileId = usize;

/// The index of a module.
type ModuleId = usize;

/// The module of `lib.rs`.
const ROOT: ModuleId = 0;

/// A crate without its tests.
pub struct Crate {
    files: Vec<File>,
    modules: Vec<Module>,
}

/// A file.
struct File {
    /// Its path below `src`.
    path: String,
    /// Its lines outside tests.
    lines: usize,
}

/// A module, that of a file or one within it.
struct Module {
    /// The module around it.
    parent: Option<ModuleId>,
    file: FileId,
    names: Names,
    facts: Facts,
}

/// A type with inherent `impl` blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Methods {
    /// The name of the type.
    pub name: String,
    /// The file that defines it.
    pub file: FileId,
    pub kind: Option<Kind>,
    pub all: usize,
    pub public: usize,
    /// The files with `impl` blocks, and the methods in each.
    pub files: BTreeMap<FileId, usize>,
}

impl Crate {
    /// Parses a crate, given the text of its files by their paths below `src`.
    pub fn parse(texts: &BTreeMap<String, String>) -> Result<Crate> {
        let mut parsed = Crate { files: Vec::new(), modules: Vec::new() };
        parsed.add_file(texts, "lib.rs", None, "")?;
        Ok(parsed)
    }

    /// Adds the module of a file, whose submodules are in `folder`.
    fn add_file(
        &mut self,
        texts: &BTreeMap<String, String>,
        path: &str,
        parent: Option<ModuleId>,
        folder: &str,
    ) -> Result<ModuleId> {
        let text = texts.get(path).ok_or_else(|| format!("{path} is missing"))?;
        let parsed = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        self.files.push(File { path: path.to_owned(), lines: text.lines().count() });
        self.add_module(texts, parsed.items, parent, self.files.len() - 1, folder)
    }

    fn add_module(
        &mut self,
        texts: &BTreeMap<String, String>,
        items: Vec<Item>,
        parent: Option<ModuleId>,
        file: FileId,
        folder: &str,
    ) -> Result<ModuleId> {
        let id = self.modules.len();
        self.modules.push(Module { parent, file, names: Names::default(), facts: Facts::default() });
        for item in items {
            if is_test(attributes(&item)) {
                self.files[file].lines -= lines_of(&item);
                continue;
            }
            let Item::Mod(module) = item else {
                let Module { names, facts, .. } = &mut self.modules[id];
                names.bind(&item);
                facts.visit_item(&item);
                continue;
            };
            let name = module.ident.to_string();
            let inner = format!("{folder}{name}/");
            let child = match module.content {
                Some((_, items)) => self.add_module(texts, items, Some(id), file, &inner)?,
                None if is_test_file(&name) => continue,
                None => {
                    let (beside, inside) = (format!("{folder}{name}.rs"), format!("{inner}mod.rs"));
                    let path = if texts.contains_key(&beside) { beside } else { inside };
                    self.add_file(texts, &path, Some(id), &inner)?
                }
            };
            self.modules[id].names.add(name, Binding::Module(child));
        }
        self.files[file].lines -= self.modules[id].facts.test_lines;
        Ok(id)
    }

    /// The path of a file below `src`.
    pub fn path(&self, file: FileId) -> &str {
        &self.files[file].path
    }

    /// Lines of all files outside tests.
    pub fn lines(&self) -> usize {
        self.files.iter().map(|file| file.lines).sum()
    }

    /// Asserts outside tests.
    pub fn asserts(&self) -> usize {
        self.modules.iter().map(|module| module.facts.asserts).sum()
    }

    /// All functions with a body, and their files.
    pub fn functions(&self) -> impl Iterator<Item = (FileId, &Function)> {
        self.modules.iter().flat_map(|module| module.facts.functions.iter().map(|it| (module.file, it)))
    }

    /// The types with inherent `impl` blocks, and their methods.
    pub fn methods(&self) -> Vec<Methods> {
        let mut types: BTreeMap<(ModuleId, String), Methods> = BTreeMap::new();
        for (module, content) in self.modules.iter().enumerate() {
            for block in &content.facts.impls {
                let definitions = self.resolve(module, &block.type_path).into_iter();
                let of_item = |definition| match definition {
                    Definition::Item { module, name } => Some((module, name)),
                    Definition::Module(_) => None,
                };
                // The type of another crate has no inherent methods here.
                let Some((home, name)) = definitions.filter_map(of_item).next() else { continue };
                let counted = types.entry((home, name.clone())).or_insert_with(|| Methods {
                    kind: self.kind(home, &name),
                    file: self.modules[home].file,
                    name,
                    all: 0,
                    public: 0,
                    files: BTreeMap::new(),
                });
                counted.all += block.methods;
                counted.public += block.public;
                *counted.files.entry(content.file).or_default() += block.methods;
            }
        }
        types.into_values().collect()
    }
}
