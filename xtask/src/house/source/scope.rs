//! Names of a module, and the definitions that paths lead to.
//!
//! A path goes from module to module by names: items, submodules and imports. A re-export is an import, too. The
//! definition is the item at the end of all imports, so a facade of re-exports has no part in it. Behind an item a path
//! goes on to variants, methods and associated types: they belong to the item.

use super::{Crate, ModuleId, ROOT};
use std::collections::BTreeMap;
use syn::{Item, ItemUse, UseTree, Visibility};

/// The kind of an item, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Struct,
    Enum,
    Other,
}

/// The meaning of a name in a module.
#[derive(Clone, Debug)]
pub enum Binding {
    /// An item of the module.
    Item(Kind),
    /// A submodule.
    Module(ModuleId),
    /// An import.
    Import(Path),
}

/// A path as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Whether it begins with `::`, and so with the name of another crate.
    pub is_global: bool,
    pub segments: Vec<String>,
}

/// One import of a `use` item.
#[derive(Clone, Debug)]
pub struct Import {
    pub path: Path,
    /// The name that it binds; none of `*` and of `_`.
    pub name: Option<String>,
    pub is_glob: bool,
    /// Whether other modules may import it from here.
    pub is_reexport: bool,
}

/// All names of a module. A name may have several meanings: types and functions do not exclude each other.
#[derive(Default)]
pub struct Names {
    bindings: BTreeMap<String, Vec<Binding>>,
    globs: Vec<Path>,
}

/// The end of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Definition {
    Module(ModuleId),
    Item { module: ModuleId, name: String },
}

/// Imports that are being resolved: one that leads back to itself ends there.
type Pending = Vec<(ModuleId, String, usize)>;

impl Path {
    pub fn new(segments: impl IntoIterator<Item = impl Into<String>>) -> Path {
        Path { is_global: false, segments: segments.into_iter().map(Into::into).collect() }
    }
}

impl Import {
    /// The imports of one item.
    pub fn all_of(item: &ItemUse) -> Vec<Import> {
        let mut imports = Vec::new();
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        let start = Path { is_global: item.leading_colon.is_some(), segments: Vec::new() };
        flatten(&item.tree, &start, is_reexport, &mut imports);
        imports
    }
}

fn flatten(tree: &UseTree, before: &Path, is_reexport: bool, imports: &mut Vec<Import>) {
    let extended = |segment: String| {
        let mut path = before.clone();
        // `a::{self}` means `a`.
        if segment != "self" || path.segments.is_empty() {
            path.segments.push(segment);
        }
        path
    };
    match tree {
        UseTree::Path(tree) => flatten(&tree.tree, &extended(tree.ident.to_string()), is_reexport, imports),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, before, is_reexport, imports));
        }
        UseTree::Name(name) => {
            let path = extended(name.ident.to_string());
            let name = path.segments.last().cloned();
            imports.push(Import { path, name, is_glob: false, is_reexport });
        }
        UseTree::Rename(tree) => {
            let (path, name) = (extended(tree.ident.to_string()), tree.rename.to_string());
            let name = Some(name).filter(|name| name != "_");
            imports.push(Import { path, name, is_glob: false, is_reexport });
        }
        UseTree::Glob(_) => {
            imports.push(Import { path: before.clone(), name: None, is_glob: true, is_reexport });
        }
    }
}

impl Names {
    pub fn add(&mut self, name: String, binding: Binding) {
        self.bindings.entry(name).or_default().push(binding);
    }

    /// Binds the names that an item defines or imports.
    pub fn bind(&mut self, item: &Item) {
        let (ident, kind) = match item {
            Item::Use(item) => {
                return Import::all_of(item).into_iter().for_each(|import| self.import(import));
            }
            Item::Struct(item) => (&item.ident, Kind::Struct),
            Item::Enum(item) => (&item.ident, Kind::Enum),
            Item::Const(item) => (&item.ident, Kind::Other),
            Item::Fn(item) => (&item.sig.ident, Kind::Other),
            Item::Static(item) => (&item.ident, Kind::Other),
            Item::Trait(item) => (&item.ident, Kind::Other),
            Item::Type(item) => (&item.ident, Kind::Other),
            Item::Union(item) => (&item.ident, Kind::Other),
            Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => (ident, Kind::Other),
            _ => return,
        };
        self.add(ident.to_string(), Binding::Item(kind));
    }

    fn import(&mut self, import: Import) {
        match import.name {
            Some(name) => self.add(name, Binding::Import(import.path)),
            None if import.is_glob => self.globs.push(import.path),
            None => {}
        }
    }
}

impl Crate {
    /// The definitions that a path of a module leads to; none if they are of another crate.
    pub fn resolve(&self, module: ModuleId, path: &Path) -> Vec<Definition> {
        let mut found = self.follow(module, path, &mut Vec::new());
        found.sort();
        found.dedup();
        found
    }

    /// The kind of an item; none of one that a macro defines.
    pub fn kind(&self, module: ModuleId, name: &str) -> Option<Kind> {
        let bindings = self.modules[module].names.bindings.get(name)?;
        let kinds = bindings.iter().filter_map(|binding| match binding {
            Binding::Item(kind) => Some(*kind),
            _ => None,
        });
        kinds.min_by_key(|kind| *kind == Kind::Other)
    }

    fn follow(&self, from: ModuleId, path: &Path, pending: &mut Pending) -> Vec<Definition> {
        let Some((first, mut rest)) = path.segments.split_first().filter(|_| !path.is_global) else {
            return Vec::new();
        };
        let parent = |module: ModuleId| self.modules[module].parent.unwrap_or(ROOT);
        let mut found = match first.as_str() {
            "crate" => vec![Definition::Module(ROOT)],
            "self" => vec![Definition::Module(from)],
            "super" => {
                let mut module = parent(from);
                while rest.first().is_some_and(|segment| segment == "super") {
                    (module, rest) = (parent(module), &rest[1..]);
                }
                vec![Definition::Module(module)]
            }
            name => self.lookup(from, name, pending).unwrap_or_default(),
        };
        for segment in rest {
            let step = |definition| match definition {
                Definition::Module(module) => match self.lookup(module, segment, pending) {
                    Some(found) => found,
                    // A macro defines it.
                    None => vec![Definition::Item { module, name: segment.clone() }],
                },
                item => vec![item],
            };
            found = found.into_iter().flat_map(step).collect();
        }
        found
    }

    /// The meanings of a name in a module; `None` if it has none that is known.
    fn lookup(&self, module: ModuleId, name: &str, pending: &mut Pending) -> Option<Vec<Definition>> {
        let names = &self.modules[module].names;
        let Some(bindings) = names.bindings.get(name) else {
            return names.globs.iter().enumerate().find_map(|(at, path)| {
                let modules = self.once((module, "*".to_owned(), at), path, pending);
                modules.into_iter().find_map(|definition| match definition {
                    Definition::Module(module) => self.lookup(module, name, pending),
                    Definition::Item { .. } => None,
                })
            });
        };
        let mut found = Vec::new();
        for (at, binding) in bindings.iter().enumerate() {
            match binding {
                Binding::Item(_) => found.push(Definition::Item { module, name: name.to_owned() }),
                Binding::Module(module) => found.push(Definition::Module(*module)),
                Binding::Import(path) => {
                    found.extend(self.once((module, name.to_owned(), at), path, pending))
                }
            }
        }
        Some(found)
    }

    /// Follows the path of an import unless that is under way already.
    fn once(&self, import: (ModuleId, String, usize), path: &Path, pending: &mut Pending) -> Vec<Definition> {
        if pending.contains(&import) {
            return Vec::new();
        }
        let module = import.0;
        pending.push(import);
        let found = self.follow(module, path, pending);
        pending.pop();
        found
    }
}
