//! The data folder of a node: the layout and the founding of the data that is there, or those of the data to be made.
//!
//! Invariant: an option that differs from the data that is there is an error, never a change of it.
//!
//! Left out: which node of which cluster the folder is of (`membership/entry.rs`).

use crate::config::Config;
use crate::error::Error;
use crate::machine;
use crate::memory::{SHARD_MEMORY_MIN, memory_limit};
use engine::Durability;
use node::Layout;
use node::layout::{self, Owner, SHARDS_MAX};
use node::store::TypeBackends;
use node::store::founding::Founding;
use os::OsDisk;
use ring::RingSize;
use std::fmt::Display;

/// The kind of the stores of present data, or of those of the data to be made.
pub fn find_founding(config: &Config) -> Result<Founding, Error> {
    let failed = |cause| Error::Store { folder: config.data.clone(), cause };
    let found = layout::read_founding(&mut OsDisk::blocking(), &config.data).map_err(failed)?;
    let (asked_backend, asked_types) = (config.backend, config.type_backends.as_ref());
    let founding = match found {
        Some(has) => {
            if let Some(asked) = asked_backend.filter(|&asked| asked != has.backend) {
                return Err(differs(config, "backend", &has.backend.name(), &asked.name()));
            }
            if let Some(asked) = asked_types.filter(|&asked| *asked != has.types) {
                let (has, asked) = (or_none(&has.types), or_none(asked));
                return Err(differs(config, "type-backends", &has, &asked));
            }
            has
        }
        None => Founding {
            backend: asked_backend.unwrap_or_default(),
            types: asked_types.cloned().unwrap_or_default(),
        },
    };
    match founding.other_backend() {
        Some(backend) if config.durability == Durability::Interval => {
            let what = format!("the backend {backend} supports durability none and sync, not interval");
            Err(Error::Options("durability", what))
        }
        _ => Ok(founding),
    }
}

/// The layout of the data that is there and whose it is, or the layout of the data to be made.
pub fn find_layout(config: &Config) -> Result<(Layout, Option<Owner>), Error> {
    let failed = |cause| Error::Store { folder: config.data.clone(), cause };
    let mut disk = OsDisk::blocking();
    let Some(layout) = Layout::read(&mut disk, &config.data).map_err(failed)? else {
        let shards = config
            .shards
            .unwrap_or_else(|| shards_default(memory_limit(config.memory.map(|size| size.0)).bytes));
        return Ok((Layout::new(shards, config.ring_size.unwrap_or_default()), None));
    };
    let has = layout.ring_size.partitions();
    if let Some(asked) = config.ring_size.map(RingSize::partitions).filter(|&asked| asked != has) {
        return Err(differs(config, "ring-size", &has, &asked));
    }
    if let Some(asked) = config.shards.filter(|&asked| asked != layout.shards) {
        return Err(differs(config, "shards", &layout.shards, &asked));
    }
    Ok((layout, Layout::read_owner(&mut disk, &config.data).map_err(failed)?))
}

/// One shard for each core but one, which is left to the disk and job threads and to the kernel:
/// docs/decisions/0004 has the figures. And no more than have the memory that each takes for
/// itself.
pub fn shards_default(memory: u64) -> u16 {
    let of_memory = usize::try_from(memory / SHARD_MEMORY_MIN).unwrap_or(usize::MAX);
    u16::try_from(machine::cores().saturating_sub(1).min(of_memory).max(1))
        .unwrap_or(SHARDS_MAX)
        .min(SHARDS_MAX)
}

fn or_none(types: &TypeBackends) -> String {
    if types.is_empty() { "none".to_owned() } else { types.to_string() }
}

fn differs(config: &Config, what: &'static str, has: &dyn Display, asked: &dyn Display) -> Error {
    Error::Layout { data: config.data.clone(), what, has: has.to_string(), asked: asked.to_string() }
}
