//! Bucket properties: Riak's set, with Riak's defaults and rules.
//!
//! A bucket has its type's properties until it is given some of its own. A change is a list of [`Prop`]s;
//! [`BucketProps::with`] applies all of it or, with a reason for each bad one, none.
//!
//! No hook can be run here. As on a Riak node that lacks a hook's module, a pre-commit hook fails every write
//! ([`BucketProps::check_precommit`]), and a post-commit hook fails without an effect. A value that names a service
//! which is not here (a backend, Solr, another hash function) is refused. Properties of old replication and of
//! causality of another kind (clock pruning) are kept and reported: no client can see that they change nothing.
//!
//! A stored value of an older program is read as it is, and may be set again: only a change is checked.
//!
//! Buckets of the type `default` cannot have what a type decides for good: a data type, strong consistency, write-once.
//! A type is made consistent when it is created, and keeps its `n_val`, as do its buckets: the groups of its keys
//! ([`crate::consistent`]) go by both. It has no hooks and no `ttl`. Properties of quorums and siblings are kept and
//! reported there, and change nothing. Left out: data types, so no type can have one.
//!
//! * `check.rs`: what may be changed to what.
//! * `types.rs`: bucket types. `table.rs`: all types and buckets of a node. `digest.rs`: how two nodes find out what
//!   differs.
//! * `codec.rs`, `stamped.rs`: how they are stored.

mod check;
mod codec;
mod digest;
pub(crate) mod reason;
mod stamped;
mod table;
pub(crate) mod type_status;
mod types;

pub use check::Subject;
pub use reason::Reason;
pub use stamped::StampedProps;
pub use table::{BUCKETS_WITH_PROPS_MAX, BucketTable, PropsChange, PropsSums, RESETS_MAX, Resets};
pub use type_status::TypeStatus;
pub use types::{StampedType, TYPES_MAX, TypeChange};

use base::Wall;
use bytes::Bytes;
use object::Policy;

use crate::error::Error;
use crate::quorum::Quorum;

/// The most replicas a bucket may ask for: far beyond any use, and small enough to walk a ring for.
pub const N_VAL_MAX: u32 = 64;

/// The most replicas of a consistent type: the voters of its groups.
pub const CONSISTENT_N_VAL_MAX: u32 = strong::group::VOTERS_MAX as u32;

/// The longest time to live, in seconds: ten years. Hash trees are kept for each day on which something ends.
pub const TTL_MAX: u32 = 10 * 365 * 86_400;

/// The longest name in a property (backend, module, function, hook, search index).
pub const PROP_BYTES_MAX: usize = 255;

/// The most hooks in a list.
pub const HOOKS_MAX: usize = 16;

/// The name of an Erlang function. Nothing is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModFun {
    /// The module.
    pub module: Bytes,
    /// The function.
    pub function: Bytes,
}

impl ModFun {
    const fn fixed(module: &'static str, function: &'static str) -> ModFun {
        ModFun {
            module: Bytes::from_static(module.as_bytes()),
            function: Bytes::from_static(function.as_bytes()),
        }
    }
}

/// A commit hook. Nothing is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In Erlang.
    Erlang(ModFun),
    /// In JavaScript, by name.
    Named(Bytes),
}

impl Hook {
    /// Why it fails, as an Erlang term.
    fn failure(&self) -> String {
        match self {
            Hook::Erlang(fun) => {
                format!("{{hook_crashed,{{{},{},error,undef}}}}", atom(&fun.module), atom(&fun.function))
            }
            Hook::Named(name) => {
                format!("{{invalid_hook_def,{{struct,[{{<<\"name\">>,<<\"{}\">>}}]}}}}", name.escape_ascii())
            }
        }
    }
}

/// A name as an Erlang atom.
fn atom(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@".contains(byte);
    if name.first().is_some_and(u8::is_ascii_lowercase) && name.iter().all(is_plain) {
        return name.escape_ascii().to_string();
    }
    format!("'{}'", name.escape_ascii())
}

/// Which replicas flush a write before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOnWrite {
    /// As the store is configured.
    Backend,
    /// The coordinator.
    One,
    /// Every replica.
    All,
}

/// Which of Riak's enterprise replications take the bucket. Inert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repl {
    /// Neither.
    False,
    /// Real-time only.
    Realtime,
    /// Full-sync only.
    Fullsync,
    /// Both.
    True,
}

/// Declares the properties: the struct that holds all of them, the enum that changes one of them, and the way
/// between. The number is the property's tag in storage: Riak's protocol number where there is one.
macro_rules! props {
    ($($(#[$doc:meta])+ $field:ident $variant:ident: $type:ty = $default:expr, $tag:literal;)*) => {
        /// All the properties of a bucket.
        #[derive(Clone, Debug, PartialEq)]
        pub struct BucketProps {
            $($(#[$doc])+ pub $field: $type,)*
        }

        impl Default for BucketProps {
            /// Riak's defaults for an untyped bucket.
            fn default() -> BucketProps {
                BucketProps { $($field: $default,)* }
            }
        }

        /// One property with a value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Prop {
            $($(#[$doc])+ $variant($type),)*
        }

        impl Prop {
            /// The names of all properties.
            pub const NAMES: &[&str] = &[$(stringify!($field)),*];

            /// The property's name.
            pub fn name(&self) -> &'static str {
                match self { $(Prop::$variant(_) => stringify!($field),)* }
            }

            fn tag(&self) -> u8 {
                match self { $(Prop::$variant(_) => $tag,)* }
            }

            fn encode_value(&self, out: &mut Vec<u8>) {
                match self { $(Prop::$variant(value) => codec::Value::encode(value, out),)* }
            }

            fn decode(tag: u8, bytes: &mut &[u8]) -> Option<Prop> {
                Some(match tag {
                    $($tag => Prop::$variant(codec::Value::decode(bytes)?),)*
                    _ => return None,
                })
            }
        }

        impl BucketProps {
            /// Takes one property over, unchecked.
            fn set(&mut self, prop: Prop) {
                match prop { $(Prop::$variant(value) => self.$field = value,)* }
            }

            /// The properties that differ from `base`, by ascending tag.
            fn differences(&self, base: &BucketProps) -> Vec<Prop> {
                let mut props = Vec::new();
                $(if self.$field != base.$field {
                    props.push(Prop::$variant(self.$field.clone()));
                })*
                props
            }
        }
    };
}

props! {
    /// Replicas of each object.
    n_val NVal: u32 = 3, 1;
    /// Whether concurrent writes are kept as siblings.
    allow_mult AllowMult: bool = false, 2;
    /// Whether a write replaces what is there without reading it.
    last_write_wins LastWriteWins: bool = false, 3;
    /// Hooks before a write: any makes it fail.
    precommit Precommit: Vec<Hook> = Vec::new(), 4;
    /// Hooks after a write; none is called.
    postcommit Postcommit: Vec<Hook> = Vec::new(), 6;
    /// The function that hashes keys: one of Riak's own; reported only.
    chash_keyfun ChashKeyfun: ModFun = ModFun::fixed("riak_core_util", "chash_std_keyfun"), 8;
    /// The function that finds an object's links; reported only.
    linkfun Linkfun: ModFun = ModFun::fixed("riak_kv_wm_link_walker", "mapreduce_linkfun"), 9;
    /// Clock pruning: the age in seconds from which an entry may go; inert.
    old_vclock OldVclock: u32 = 86_400, 10;
    /// Clock pruning: the age in seconds below which none goes; inert.
    young_vclock YoungVclock: u32 = 20, 11;
    /// Clock pruning: the length from which entries go; inert.
    big_vclock BigVclock: u32 = 50, 12;
    /// Clock pruning: the length below which none goes; inert.
    small_vclock SmallVclock: u32 = 50, 13;
    /// Primaries needed among the replies to a read.
    pr Pr: Quorum = Quorum::Exactly(0), 14;
    /// Replies needed to a read.
    r R: Quorum = Quorum::Quorum, 15;
    /// Replies needed to a write.
    w W: Quorum = Quorum::Quorum, 16;
    /// Primaries needed among the replies to a write.
    pw Pw: Quorum = Quorum::Exactly(0), 17;
    /// Durable replies needed to a write.
    dw Dw: Quorum = Quorum::Quorum, 18;
    /// Replies needed in both halves of a delete.
    rw Rw: Quorum = Quorum::Quorum, 19;
    /// Whether a quorum of notfounds ends a read.
    basic_quorum BasicQuorum: bool = false, 20;
    /// Whether a notfound counts as a good reply.
    notfound_ok NotfoundOk: bool = true, 21;
    /// The backend's name: none can be chosen so.
    backend Backend: Option<Bytes> = None, 22;
    /// Old search: cannot be switched on.
    search Search: Option<bool> = None, 23;
    /// Enterprise replication; inert.
    repl Repl: Repl = Repl::True, 24;
    /// The Solr index: there is none.
    search_index SearchIndex: Option<Bytes> = None, 25;
    /// The data type: its bucket type's.
    datatype Datatype: Option<Bytes> = None, 26;
    /// Whether writes of a key have one order, kept by its group: its bucket type's.
    consistent Consistent: bool = false, 27;
    /// Whether keys are written once: its bucket type's.
    write_once WriteOnce: bool = false, 28;
    /// The precision of hyperloglogs.
    hll_precision HllPrecision: Option<u32> = None, 29;
    /// Distinct nodes needed among the replies.
    node_confirms NodeConfirms: u32 = 0, 64;
    /// Which replicas flush before a write is acknowledged.
    sync_on_write SyncOnWrite: SyncOnWrite = SyncOnWrite::Backend, 65;
    /// Whether anti-entropy leaves the bucket out.
    aae_tree_exclude AaeTreeExclude: bool = false, 66;
    /// Reported only: dotted version vectors are always kept.
    dvv_enabled DvvEnabled: bool = false, 67;
    /// Seconds after which what is written ends; 0 for never.
    ttl Ttl: u32 = 0, 68;
}

impl BucketProps {
    /// Riak's defaults for a bucket type.
    pub fn of_new_type() -> BucketProps {
        BucketProps { allow_mult: true, dvv_enabled: true, ..BucketProps::default() }
    }

    /// What becomes of concurrent writes.
    pub fn policy(&self) -> Policy {
        match (self.last_write_wins, self.allow_mult && !self.write_once) {
            (true, _) => Policy::LastWriteWins,
            (false, true) => Policy::AllowMult,
            (false, false) => Policy::Newest,
        }
    }

    /// When what is written now ends, in milliseconds since 1970; `None` for never.
    pub fn expires_ms(&self, now: Wall) -> Option<u64> {
        (self.ttl > 0).then(|| now.millis().saturating_add(u64::from(self.ttl) * 1000))
    }

    /// Whether a write may go on: no pre-commit hook can be run here, so any makes it fail, as a hook does in Riak
    /// whose module a node lacks.
    ///
    /// # Errors
    /// [`Error::Precommit`] with Riak's reason, of the first hook.
    pub fn check_precommit(&self) -> Result<(), Error> {
        self.precommit.first().map_or(Ok(()), |hook| Err(Error::Precommit(hook.failure())))
    }

    /// Whether replicas may read, join, repair, carry or reap versions of a key by themselves. In consistent types its
    /// group alone does so.
    ///
    /// # Errors
    /// [`Error::Unavailable`], as Riak answers where strong consistency is off.
    pub fn check_eventual(&self) -> Result<(), Error> {
        if self.consistent && !base::planted!(RepairBesideGroup) { Err(Error::Unavailable) } else { Ok(()) }
    }

    /// Whether readers are shown one sibling, the newest, of an object that may have more.
    pub fn shows_newest_only(&self) -> bool {
        self.policy() != Policy::AllowMult
    }

    /// These properties of an untyped bucket with `changes`, all of them or none ([`BucketProps::changed`]).
    pub fn with(&self, changes: &[Prop]) -> Result<BucketProps, Error> {
        self.changed(changes, Subject::UntypedBucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_riaks() {
        let props = BucketProps::default();
        assert_eq!((props.n_val, props.allow_mult, props.last_write_wins), (3, false, false));
        assert_eq!((props.r, props.pr, props.rw), (Quorum::Quorum, Quorum::Exactly(0), Quorum::Quorum));
        assert_eq!((props.w, props.pw, props.dw), (Quorum::Quorum, Quorum::Exactly(0), Quorum::Quorum));
        assert_eq!((props.old_vclock, props.young_vclock), (86_400, 20));
        assert_eq!((props.big_vclock, props.small_vclock), (50, 50));
        assert_eq!((props.basic_quorum, props.notfound_ok, props.node_confirms), (false, true, 0));
    }

    #[test]
    fn hooks_fail_as_in_a_riak_without_them() {
        let with = |hooks| BucketProps { precommit: hooks, ..BucketProps::default() }.check_precommit();
        let text = |result: Result<(), Error>| result.unwrap_err().to_string();
        assert_eq!(with(Vec::new()), Ok(()));
        let first = Hook::Erlang(ModFun::fixed("riak_hooks", "check@1"));
        let second = Hook::Named(Bytes::from_static(b"js \"x\""));
        let reason = "{precommit_fail,{hook_crashed,{riak_hooks,check@1,error,undef}}}";
        assert_eq!(text(with(vec![first, second.clone()])), reason);
        let reason = r#"{precommit_fail,{invalid_hook_def,{struct,[{<<"name">>,<<"js \"x\"">>}]}}}"#;
        assert_eq!(text(with(vec![second])), reason);
        let odd = Hook::Erlang(ModFun { module: Bytes::from_static(b"Mod\n"), function: Bytes::new() });
        assert_eq!(text(with(vec![odd])), r"{precommit_fail,{hook_crashed,{'Mod\n','',error,undef}}}");
    }

    #[test]
    fn types_have_siblings() {
        let (typed, untyped) = (BucketProps::of_new_type(), BucketProps::default());
        assert_eq!(typed, BucketProps { allow_mult: true, dvv_enabled: true, ..untyped });
        assert_eq!(typed.policy(), Policy::AllowMult);
        let once = BucketProps { write_once: true, ..typed };
        assert!(once.shows_newest_only(), "nobody is asked to resolve what is written once");
    }
}
