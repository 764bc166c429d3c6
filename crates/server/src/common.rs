//! The parts that all threads of a node share, made from its configuration.
//!
//! 1. The memory of the node is divided ([`MemoryPlan`]), and the options of its stores follow from that.
//! 2. Members, owners and promises are those of the log, as of the start.
//! 3. Each thread gets a copy, whose parts are shared.
//!
//! Invariant: these fields do not change while the node runs; state that changes is behind a shared part.
//!
//! Left out: the node's data folder (`data_folder.rs`), and its part in the agreement (`membership`).

use crate::backup::Backups;
use crate::client_ports::ClientPorts;
use crate::compact::Compactions;
use crate::config::{Config, SETTINGS, Size};
use crate::drain::Drain;
use crate::error::Error;
use crate::groups::NodeGroups;
use crate::levels::LogLevels;
use crate::machine;
use crate::mailbox::Mailboxes;
use crate::membership::{self, Part};
use crate::memory::{MEMORY_MIN, MemoryBudgets, MemoryLimit, MemoryPlan};
use crate::peer::{Peers, Tls};
use crate::progress::Progress;
use crate::purge::Purges;
use crate::security::{DoorGuard, Hashing};
use crate::trees::NodeTrees;
use engine::Options;
use engine::store::{Concurrency, Resources};
use kv::ReadStrategy;
use node::http::HostNames;
use node::layout::Owner;
use node::riak::{Identity, RIAK_VERSION};
use node::store::founding::Founding;
use node::{GROUPS, INDEXING, Layout, LeaseConfig, Members, Rebuilding, SlowRequests, Topology};
use os::{Address, OsClock};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Connections that a node takes however little memory it has.
const CONNECTIONS_MIN: usize = 64;

/// The state that all threads of a node share.
#[derive(Clone)]
pub struct Common {
    /// The data folder.
    pub data: PathBuf,
    /// How it is laid out.
    pub layout: Layout,
    /// Whose the data is.
    pub owner: Arc<Owner>,
    /// The nodes of the cluster, and which of them this is, when it starts.
    pub members: Arc<Members>,
    /// The owners of partitions then, and the owners to be.
    pub topology: Arc<Topology>,
    /// The needs of links to other nodes; `None` for a node alone.
    pub peers: Option<Arc<Peers>>,
    /// The node's description of itself.
    pub identity: Arc<Identity>,
    /// The kind of its stores.
    pub founding: Founding,
    /// How stores are opened.
    pub options: Options,
    /// How memory is divided, and the parts that shards share.
    pub memory: MemoryPlan,
    /// See `memory`.
    pub budgets: MemoryBudgets,
    /// Threads for each of them.
    pub concurrency: Concurrency,
    /// Every option in force, as text.
    pub told: Arc<BTreeMap<String, String>>,
    /// How reads ask their replicas.
    pub read_form: ReadStrategy,
    /// This process, for other nodes.
    pub life: u64,
    /// Its promises to other processes, and its use of leases.
    pub leases: LeaseConfig,
    /// Age at which tombstones are reaped; `None`: they are kept, and other nodes may not reap them either.
    pub delete_mode: Option<Duration>,
    /// How often all is compared with other nodes.
    pub anti_entropy: Option<Duration>,
    /// When the hashes for that are made anew.
    pub rebuilding: Rebuilding,
    /// Messages between threads.
    pub mailboxes: Arc<Mailboxes>,
    /// The agreement of the nodes.
    pub membership: membership::Handle,
    /// Backups of the node.
    pub backups: Arc<Backups>,
    /// Its hash trees.
    pub trees: Arc<NodeTrees>,
    /// The compaction of its stores.
    pub compactions: Arc<Compactions>,
    /// Its groups of consistent bucket types.
    pub groups: Arc<NodeGroups>,
    /// Its purges.
    pub purges: Arc<Purges>,
    /// The hashes of new passwords.
    pub hashing: Hashing,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// The names that its HTTP is asked by.
    pub hosts: Arc<HostNames>,
    /// The same of its HTTPS.
    pub https_hosts: Arc<HostNames>,
    /// The guard of the doors for clients.
    pub(crate) guard: Arc<DoorGuard>,
    /// Where it serves HTTP.
    pub http: Address,
    /// The wait of a stop for balancers.
    pub drain: Arc<Drain>,
    /// The levels of the log.
    pub log: Arc<dyn LogLevels>,
    /// The log of slow requests.
    pub slow: Arc<SlowRequests>,
    /// Connections that are open in all threads.
    pub connections: Arc<AtomicUsize>,
    /// How many there may be.
    pub connections_max: usize,
    /// How long one may say nothing.
    pub idle_timeout: Duration,
    /// Shards that are not drained, while the node stops: messages for one of them may come by the links of another.
    pub undrained: Arc<AtomicUsize>,
}

/// Parts of a node that are not of its data: its ports for clients, its progress, its log, and the guard of its doors.
type Outside = (ClientPorts, Arc<Progress>, Arc<dyn LogLevels>, Arc<DoorGuard>);

impl Common {
    /// Of a node with this part in its cluster's agreement.
    ///
    /// # Errors
    /// [`Error::Membership`] if the node is not a member any more.
    pub fn new(
        config: &Config,
        (layout, founding): (Layout, Founding),
        owner: Owner,
        (part, tls): (&Part, Option<Tls>),
        (membership, memory): (membership::Handle, &MemoryLimit),
        (clients, progress, log, guard): Outside,
    ) -> Result<Common, Error> {
        let removed = || Error::Membership(::membership::Stop::Removed.to_string());
        let roster = part.roster().ok_or_else(removed)?;
        let members = Arc::clone(roster.members());
        let identity = part.identity();
        let life = identity.start;
        let leases =
            LeaseConfig::starting(part.node(), life, layout.shards, config.strong_reads, &OsClock::new());
        let listed = config.cluster.clone();
        let peers = tls.map(|tls| Arc::new(Peers::new(tls, identity, roster, listed, membership.clone())));
        let topology =
            membership::topology(part.node(), part.state(), part.state().published()).ok_or_else(removed)?;

        let resources = machine::resources(memory.bytes, layout.shards);
        let mut options = options(config, &resources);
        let stores = machine::stores_bytes(&options, layout.shards);
        let memory = MemoryPlan::new(memory.bytes, layout.shards, stores);
        let budgets = MemoryBudgets::new(&memory);
        options.journal_queue_bytes_max = memory.journal_queue();
        options.journal_budget = Some(Arc::clone(&budgets.records));
        options.value_budget = Some(Arc::clone(&budgets.values));

        let mailboxes = Arc::new(Mailboxes::new(layout.shards));
        let cluster = match &owner {
            Owner::Alone => None,
            Owner::Founder(_) | Owner::Member { .. } => Some(part.state().cluster().to_string()),
        };
        let backups = Backups::new(
            (config.data.clone(), config.backup_root()),
            (config.name.clone(), cluster),
            (layout.shards, options.reserve_bytes.saturating_mul(layout.shards.into())),
            Arc::clone(&mailboxes),
        );
        let compactions = Compactions::new(layout.shards, Arc::clone(&mailboxes));
        let groups = NodeGroups::new(layout.shards, Arc::clone(&mailboxes));
        let trees = NodeTrees::new(layout.shards, Arc::clone(&mailboxes), config.tree_rebuild_check);

        let identity = Identity { node: config.name.clone(), version: RIAK_VERSION.to_owned() };
        Ok(Common {
            data: config.data.clone(),
            layout,
            owner: Arc::new(owner),
            members,
            topology: Arc::new(topology),
            peers,
            identity: Arc::new(identity),
            told: Arc::new(told(config, layout, &options)),
            founding,
            options,
            budgets,
            concurrency: resources.concurrency(),
            read_form: config.read_form,
            life,
            leases,
            delete_mode: config.delete_mode,
            anti_entropy: config.anti_entropy,
            rebuilding: config.rebuilding(),
            trees: Arc::new(trees),
            compactions: Arc::new(compactions),
            groups: Arc::new(groups),
            mailboxes,
            membership,
            backups: Arc::new(backups),
            purges: Arc::default(),
            hashing: Hashing::new(),
            progress,
            hosts: Arc::new(clients.http_names),
            https_hosts: Arc::new(clients.https_names),
            guard,
            http: config.http_listen.clone(),
            drain: Arc::new(Drain::new(config.drain_wait)),
            log,
            slow: SlowRequests::new(config.slow, config.slow_keys),
            connections: Arc::new(AtomicUsize::new(0)),
            connections_max: config.connections_max.min(memory.connections_max().max(CONNECTIONS_MIN)),
            memory,
            idle_timeout: config.idle_timeout,
            undrained: Arc::new(AtomicUsize::new(layout.shards.into())),
        })
    }

    /// Logs the source of the node's memory limit, and warns of a small one.
    pub fn tell_memory(&self, memory: &MemoryLimit) {
        let (plan, mib) = (&self.memory, |bytes: u64| bytes >> 20);
        tracing::info!(
            "memory: {} MiB ({}); values up to {} MiB",
            mib(plan.limit),
            memory.source,
            mib(plan.value_max)
        );
        if plan.limit < MEMORY_MIN {
            tracing::warn!("the memory is below {} MiB: the node may need more than that", mib(MEMORY_MIN));
        } else if plan.sum() > plan.limit {
            tracing::warn!(
                "{} shards need {} MiB: the node may need more memory than it has",
                self.layout.shards,
                mib(plan.sum())
            );
        }
    }
}

/// How each shard's store is opened: as fits the machine, but for what was said.
fn options(config: &Config, resources: &Resources) -> Options {
    let fit = resources.options();
    let said = |size: Option<Size>| size.map(|Size(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX));
    Options {
        durability: config.durability,
        sync_interval: config.sync_interval,
        compression: config.compression,
        compress_at: config.compress_at,
        zstd_level: config.zstd_level,
        memtable_bytes_max: said(config.memtable).unwrap_or(fit.memtable_bytes_max),
        block_cache_bytes: said(config.block_cache).unwrap_or(fit.block_cache_bytes),
        reserve_bytes: config.disk_reserve.map_or(fit.reserve_bytes, |size| size.0),
        scrub_period: config.scrub_period,
        waste_retention: config.waste_retention,
        space_target_percent: config.space_target,
        indexing: Some(INDEXING),
        groups: Some(GROUPS),
        space_target_idle_percent: fit.space_target_idle_percent.min(config.space_target),
        ..fit
    }
}

/// Every option in force, as text: those of the node by their names, and under `engine` those of its stores.
fn told(config: &Config, layout: Layout, engine: &Options) -> BTreeMap<String, String> {
    let own = SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.show(config)));
    let fixed = [
        ("ring_size", layout.ring_size.partitions().to_string()),
        ("shards", layout.shards.to_string()),
        ("engine", format!("{engine:?}")),
    ];
    own.chain(fixed.map(|(name, value)| (name.to_owned(), value))).collect()
}
