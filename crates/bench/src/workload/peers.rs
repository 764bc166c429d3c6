//! Other stores, over their own protocols, and their own settings.

use super::DriverKind;
use super::fields::Fields;
use super::parse::narrow;
use crate::Error;
use std::collections::BTreeMap;

/// Redis has 16 databases if nobody says otherwise, and no more than this.
const DATABASE_MAX: u64 = (1 << 31) - 1;

/// Cassandra's own bound of a name.
const NAME_MAX: usize = 48;

const REPLICATION_DEFAULT: u32 = 3;
const REPLICATION_MAX: u64 = 64;

/// What peers are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerPlan {
    /// The database of a Redis.
    pub database: u32,
    /// What a Cassandra is told.
    pub cassandra: CassandraPlan,
}

/// What a Cassandra is told.
#[derive(Clone, Debug, PartialEq)]
pub struct CassandraPlan {
    /// The keyspace, which is made if it is not there.
    pub keyspace: String,
    /// The table, which is made if it is not there.
    pub table: String,
    /// Replicas of each row, in a keyspace that is made.
    pub replication: u32,
    /// How many of them a read or a write waits for.
    pub consistency: Consistency,
}

impl Default for CassandraPlan {
    fn default() -> CassandraPlan {
        CassandraPlan {
            keyspace: "bench".to_owned(),
            table: "objects".to_owned(),
            replication: REPLICATION_DEFAULT,
            consistency: Consistency::Quorum,
        }
    }
}

/// How many replicas a request waits for: those of Cassandra's levels that reads and writes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are Cassandra's words")]
pub enum Consistency {
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    LocalOne,
}

impl Consistency {
    /// All levels, and their names in workloads.
    pub const ALL: [(&str, Consistency); 7] = [
        ("one", Consistency::One),
        ("two", Consistency::Two),
        ("three", Consistency::Three),
        ("quorum", Consistency::Quorum),
        ("all", Consistency::All),
        ("local-quorum", Consistency::LocalQuorum),
        ("local-one", Consistency::LocalOne),
    ];

    /// Its name in workloads.
    pub fn name(self) -> &'static str {
        Consistency::ALL.iter().find(|(_, level)| *level == self).map_or("", |(name, _)| name)
    }
}

impl PeerPlan {
    /// What a server is told by a driver, for results.
    pub fn options(&self, driver: DriverKind) -> BTreeMap<String, String> {
        let cassandra = &self.cassandra;
        let options = match driver {
            DriverKind::Redis => vec![("database", self.database.to_string())],
            DriverKind::Cassandra => vec![
                ("keyspace", cassandra.keyspace.clone()),
                ("table", cassandra.table.clone()),
                ("replication", cassandra.replication.to_string()),
                ("consistency", cassandra.consistency.name().to_owned()),
            ],
            _ => Vec::new(),
        };
        options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The tables of peers, each for its own driver only.
pub fn peer(top: &mut Fields<'_>, driver: DriverKind) -> Result<PeerPlan, Error> {
    let mut plan = PeerPlan::default();
    if let Some(mut it) = top.inner("redis")? {
        if driver != DriverKind::Redis {
            return Err(it.error("[redis] is for driver = \"redis\"; a cluster has one database"));
        }
        plan.database = narrow(it.number("database", 0, DATABASE_MAX)?.unwrap_or(0));
        it.finish()?;
    }
    if let Some(mut it) = top.inner("cassandra")? {
        if driver != DriverKind::Cassandra {
            return Err(it.error("[cassandra] is for driver = \"cassandra\""));
        }
        plan.cassandra = cassandra(&mut it)?;
        it.finish()?;
    }
    Ok(plan)
}

fn cassandra(it: &mut Fields<'_>) -> Result<CassandraPlan, Error> {
    let default = CassandraPlan::default();
    let name = |text: &str| {
        let is_name = text.len() <= NAME_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let wanted =
            || format!("{text:?} is not 1 to {NAME_MAX} small letters, digits and _, a letter first");
        if is_name { Ok(text.to_owned()) } else { Err(wanted()) }
    };
    Ok(CassandraPlan {
        keyspace: it.parsed("keyspace", name)?.unwrap_or(default.keyspace),
        table: it.parsed("table", name)?.unwrap_or(default.table),
        replication: it.number("replication", 1, REPLICATION_MAX)?.map_or(default.replication, narrow),
        consistency: it.word("consistency", &Consistency::ALL)?.unwrap_or(default.consistency),
    })
}
