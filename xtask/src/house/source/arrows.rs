//! Arrows between the files of a crate: a file uses another one if it names a definition of it.
//!
//! Imports and written-out paths count, those of macro calls too. A re-export is an arrow only where its own module
//! uses the name as well: a file that passes a name on does not use it.

use super::scope::{Definition, Import};
use super::{Crate, FileId, Module};
use std::collections::{BTreeMap, BTreeSet};

/// The files that each file uses. Files without arrows are not in it.
pub type Arrows = BTreeMap<FileId, BTreeSet<FileId>>;

impl Crate {
    /// The arrows between its files.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (id, module) in self.modules.iter().enumerate() {
            let imports = module.facts.imports.iter().filter(|import| is_used(module, import));
            let paths = imports.map(|import| &import.path).chain(&module.facts.paths);
            for definition in paths.flat_map(|path| self.resolve(id, path)) {
                let (Definition::Module(home) | Definition::Item { module: home, .. }) = definition;
                let used = self.modules[home].file;
                if used != module.file {
                    arrows.entry(module.file).or_default().insert(used);
                }
            }
        }
        arrows
    }
}

fn is_used(module: &Module, import: &Import) -> bool {
    !import.is_reexport || import.name.as_ref().is_some_and(|name| module.facts.idents.contains(name))
}
