//! `[engine]`: the storage engine in this process, and whether keys are entries of packs there.

use super::fields::Fields;
use super::{DriverKind, Indexes, Op, Operation};
use crate::Error;
use crate::keys::Shape;
use crate::names::Naming;
use crate::values::Size;
use backends::packed::Layout;
use backends::shared::{self, Sharing};
use backends::{Durability, Kind, Settings};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A TiB: a larger cache is a mistake.
const CACHE_MIB_MAX: u64 = 1 << 20;

/// Memory beyond this is a slip: 16 TiB.
const MEMORY_MIB_MAX: u64 = 1 << 24;

/// The engine in this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnginePlan {
    /// Where its stores are; a temporary folder otherwise.
    pub folder: Option<PathBuf>,
    /// Which engine.
    pub kind: Kind,
    /// What it is told.
    pub settings: Settings,
    /// Whether all workers share one; each has its own otherwise.
    pub is_shared: bool,
    /// Keys are entries of packs; each is an object of its own otherwise.
    pub packing: Option<Packing>,
}

impl EnginePlan {
    /// How so many workers share it: where an engine's store has one owner, there are as many as cores.
    pub fn sharing(&self, workers: usize) -> Sharing {
        Sharing { threads: workers, stores: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// What it is told when so many workers use it.
    pub fn options(&self, workers: usize) -> BTreeMap<String, String> {
        let mut options = match self.is_shared {
            true => shared::options(self.kind, &self.settings, self.sharing(workers)),
            false => self.kind.options(&self.settings),
        };
        if let Some(Packing { slots, entry_bytes, .. }) = self.packing {
            options.insert("packed".to_owned(), format!("{slots} entries of {entry_bytes} bytes"));
        }
        options
    }
}

/// How keys are entries of arrays ([`backends::packed`]): a bucket is an array, and the key of a number the entry of
/// this number.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    slots: u16,
    entry_bytes: u16,
    naming: Naming,
    /// Buckets, and the layout of the array of each.
    arrays: Vec<(String, Layout)>,
}

impl Packing {
    /// So many entries a pack, for what these operations write and read.
    ///
    /// # Errors
    /// What of the workload cannot be packed.
    fn new(slots: u16, naming: &Naming, operations: &[&Operation]) -> Result<Packing, String> {
        let mut key = Vec::new();
        naming.write(0, 0, &mut key);
        if naming.number(&key) != Some(0) {
            return Err(
                "the number of a key is told by its name, not by the line of a file, nor where 17 digits \
                        could be a unique one"
                    .to_owned(),
            );
        }
        let mut sizes = operations.iter().filter(|it| it.op.has_key()).map(|it| it.size);
        let size = sizes.next().unwrap_or(Size::Fixed(0));
        let entry_bytes = match size {
            Size::Fixed(len) if sizes.all(|it| it == size) => u16::try_from(len).ok(),
            _ => None,
        };
        let entry_bytes = entry_bytes.ok_or("all entries have one size, the fixed one of [value]")?;
        let mut arrays: Vec<(String, Layout)> = Vec::new();
        for operation in operations {
            let label = &operation.label;
            if matches!(operation.op, Op::Query | Op::ListKeys | Op::ListBuckets) {
                return Err(format!(
                    "{label}: entries are in no index, and are not listed: keys there are packs"
                ));
            }
            if operation.indexes != Indexes::None {
                return Err(format!("{label}: entries have no index entries"));
            }
            if matches!(operation.keys, Some(Shape::Unique | Shape::Own | Shape::OwnOldest)) {
                return Err(format!("{label}: unique keys have no numbers"));
            }
            if operation.op.has_key() && !arrays.iter().any(|(bucket, _)| *bucket == operation.bucket) {
                let name = [operation.bucket.as_bytes(), &[0]].concat();
                let layout = Layout::new(&name, slots, entry_bytes).map_err(|error| error.to_string())?;
                arrays.push((operation.bucket.clone(), layout));
            }
        }
        Ok(Packing { slots, entry_bytes, naming: naming.clone(), arrays })
    }

    /// The array of a bucket's key, and which of its entries that is; `None` of a key that is none.
    pub fn entry(&self, bucket: &[u8], key: &[u8]) -> Option<(&Layout, u64)> {
        let (_, layout) = self.arrays.iter().find(|(name, _)| name.as_bytes() == bucket)?;
        Some((layout, self.naming.number(key)?))
    }
}

/// Reads `[engine]`, for the keys and operations of its workload.
pub(super) fn engine(
    top: &mut Fields<'_>,
    driver: DriverKind,
    naming: &Naming,
    operations: &[&Operation],
) -> Result<EnginePlan, Error> {
    let Some(mut it) = top.inner("engine")? else { return Ok(EnginePlan::default()) };
    let folder = it.text("folder")?.map(PathBuf::from);
    let kind = it.word("name", &Kind::ALL.map(|kind| (kind.name(), kind)))?.unwrap_or_default();
    let words = [("none", Durability::None), ("interval", Durability::Interval), ("sync", Durability::Sync)];
    let mut settings = Settings::default();
    if let Some(durability) = it.word("durability", &words)? {
        settings.durability = durability;
    }
    if let Some(mib) = it.number("cache_mib", 1, CACHE_MIB_MAX)? {
        settings.cache_bytes = (mib << 20) as usize;
    }
    if let Some(mib) = it.number("memory_mib", 1, MEMORY_MIB_MAX)? {
        settings.memory_bytes = Some(mib << 20);
    }
    let is_shared = it.flag("shared")?.unwrap_or(false);
    let packing =
        it.inner("packed")?.map(|packed| packing(packed, driver, naming, operations)).transpose()?;
    it.finish()?;
    Ok(EnginePlan { folder, kind, settings, is_shared, packing })
}

/// Reads `packed`.
fn packing(
    mut it: Fields<'_>,
    driver: DriverKind,
    naming: &Naming,
    operations: &[&Operation],
) -> Result<Packing, Error> {
    if driver != DriverKind::Engine {
        return Err(it.error("packed is for driver = \"engine\""));
    }
    let slots = it.number("slots", 1, u16::MAX.into())?.and_then(|slots| u16::try_from(slots).ok());
    let slots = slots.ok_or_else(|| it.error("packed says how many entries a pack has: slots = 64"))?;
    let packing =
        Packing::new(slots, naming, operations).map_err(|what| it.error(format!("packed: {what}")))?;
    it.finish()?;
    Ok(packing)
}
