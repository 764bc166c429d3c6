//! Bucket properties: Riak's set, with Riak's defaults and rules.
//!
//! A bucket has its type's properties until it is given some of its own. A change is a list of [`Prop`]s;
//! [`BucketProps::with`] applies all of it or, with a reason for each bad one, none. Properties that exist for
//! services that are not here (Solr, commit hooks, old replication) or for causality of another kind (clock
//! pruning) are kept and reported, and change nothing.
//!
//! Only the type `default` exists so far. Its buckets cannot have what a type decides for good: a data type,
//! strong consistency, write-once.

mod codec;
mod stamped;
mod table;

pub use stamped::StampedProps;
pub use table::{BUCKETS_WITH_PROPS_MAX, BucketTable};

use bytes::Bytes;
use object::Policy;

use crate::error::Error;
use crate::quorum::Quorum;

/// The most replicas a bucket may ask for: far beyond any use, and small enough to walk a ring for.
pub const N_VAL_MAX: u32 = 64;

/// The longest name in a property (backend, module, function, hook, search index).
pub const PROP_BYTES_MAX: usize = 255;

/// The most hooks in a list.
pub const HOOKS_MAX: usize = 16;

/// The name of an Erlang function. Kept and reported; nothing is called.
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

/// A commit hook. Kept and reported; nothing is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In Erlang.
    Erlang(ModFun),
    /// In JavaScript, by name.
    Named(Bytes),
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

/// Why a property was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A word of Riak's.
    Word(&'static str),
    /// A sentence.
    Text(String),
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
    /// Hooks before a write; inert.
    precommit Precommit: Vec<Hook> = Vec::new(), 4;
    /// Hooks after a write; inert.
    postcommit Postcommit: Vec<Hook> = Vec::new(), 6;
    /// The function that hashes keys; reported only.
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
    /// The backend's name; inert.
    backend Backend: Option<Bytes> = None, 22;
    /// Old search; inert.
    search Search: Option<bool> = None, 23;
    /// Enterprise replication; inert.
    repl Repl: Repl = Repl::True, 24;
    /// The Solr index; inert.
    search_index SearchIndex: Option<Bytes> = None, 25;
    /// The data type: its bucket type's.
    datatype Datatype: Option<Bytes> = None, 26;
    /// Strong consistency: its bucket type's.
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
}

impl BucketProps {
    /// What becomes of concurrent writes.
    pub fn policy(&self) -> Policy {
        match (self.last_write_wins, self.allow_mult) {
            (true, _) => Policy::LastWriteWins,
            (false, true) => Policy::AllowMult,
            (false, false) => Policy::Newest,
        }
    }

    /// Whether readers are shown one sibling, the newest, of an object that may have more.
    pub fn shows_newest_only(&self) -> bool {
        self.policy() != Policy::AllowMult
    }

    /// These properties with `changes`, all of them or none. Of a property named twice the last counts.
    pub fn with(&self, changes: &[Prop]) -> Result<BucketProps, Error> {
        let mut errors: Vec<(&'static str, Reason)> = Vec::new();
        let mut props = self.clone();
        for change in changes {
            match check(change, self) {
                Ok(()) => props.set(change.clone()),
                Err(reason) => errors.push((change.name(), reason)),
            }
        }
        if props.last_write_wins && props.dvv_enabled {
            let text = "last_write_wins and dvv_enabled cannot both be true";
            errors.push(("last_write_wins", Reason::Text(text.into())));
        }
        if errors.is_empty() { Ok(props) } else { Err(Error::InvalidProps(errors)) }
    }
}

fn check(change: &Prop, current: &BucketProps) -> Result<(), Reason> {
    match change {
        Prop::NVal(n) if *n > N_VAL_MAX => text(format!("{N_VAL_MAX} is the largest n_val")),
        // Riak says so of zero as of what is no integer.
        Prop::NVal(0)
        | Prop::OldVclock(0)
        | Prop::YoungVclock(0)
        | Prop::BigVclock(0)
        | Prop::SmallVclock(0) => Err(Reason::Word("not_integer")),
        Prop::Pr(Quorum::Default)
        | Prop::R(Quorum::Default)
        | Prop::W(Quorum::Default)
        | Prop::Pw(Quorum::Default)
        | Prop::Dw(Quorum::Default)
        | Prop::Rw(Quorum::Default) => Err(Reason::Word("not_valid_quorum")),
        Prop::Precommit(hooks) | Prop::Postcommit(hooks) => check_hooks(hooks),
        Prop::ChashKeyfun(fun) | Prop::Linkfun(fun) => check_fun(fun),
        Prop::Backend(Some(name)) | Prop::SearchIndex(Some(name)) => check_len(name),
        Prop::Datatype(Some(name)) if current.datatype.as_ref() != Some(name) => {
            check_len(name)?;
            let name = String::from_utf8_lossy(name);
            text(format!("{name} not supported for bucket datatype property"))
        }
        Prop::Consistent(wanted) if *wanted != current.consistent => {
            text("cannot change the consistent property of a bucket".into())
        }
        Prop::WriteOnce(wanted) if *wanted != current.write_once => {
            text("cannot change the write_once property of a bucket".into())
        }
        Prop::HllPrecision(Some(bits)) if !(4..=16).contains(bits) => {
            text("hll_precision must be an integer from 4 to 16".into())
        }
        Prop::NodeConfirms(count) if *count > N_VAL_MAX => text(format!("{N_VAL_MAX} is the largest n_val")),
        _ => Ok(()),
    }
}

fn check_hooks(hooks: &[Hook]) -> Result<(), Reason> {
    if hooks.len() > HOOKS_MAX {
        return text(format!("{HOOKS_MAX} hooks are the most"));
    }
    hooks.iter().try_for_each(|hook| match hook {
        Hook::Erlang(fun) => check_fun(fun),
        Hook::Named(name) => check_len(name),
    })
}

fn check_fun(fun: &ModFun) -> Result<(), Reason> {
    check_len(&fun.module)?;
    check_len(&fun.function)
}

fn check_len(name: &[u8]) -> Result<(), Reason> {
    if name.len() > PROP_BYTES_MAX {
        text(format!("names are at most {PROP_BYTES_MAX} bytes"))
    } else {
        Ok(())
    }
}

fn text(text: String) -> Result<(), Reason> {
    Err(Reason::Text(text))
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
    fn a_change_leaves_the_rest() {
        let props = BucketProps::default();
        let changed = props.with(&[Prop::AllowMult(true), Prop::NVal(2), Prop::NVal(5)]).unwrap();
        assert_eq!(changed, BucketProps { allow_mult: true, n_val: 5, ..props });
    }

    #[test]
    fn bad_properties_are_told_one_by_one_and_nothing_changes() {
        let error = BucketProps::default().with(&[
            Prop::NVal(0),
            Prop::AllowMult(true),
            Prop::R(Quorum::Default),
            Prop::Datatype(Some(Bytes::from_static(b"set"))),
            Prop::BigVclock(0),
        ]);
        let datatype = Reason::Text("set not supported for bucket datatype property".into());
        assert_eq!(
            error,
            Err(Error::InvalidProps(vec![
                ("n_val", Reason::Word("not_integer")),
                ("r", Reason::Word("not_valid_quorum")),
                ("datatype", datatype),
                ("big_vclock", Reason::Word("not_integer")),
            ]))
        );
    }

    #[test]
    fn what_a_type_decides_is_refused_and_long_names_are() {
        let long = Bytes::from(vec![b'x'; PROP_BYTES_MAX + 1]);
        let hooks = vec![Hook::Named(Bytes::from_static(b"h")); HOOKS_MAX + 1];
        for bad in [
            Prop::Consistent(true),
            Prop::WriteOnce(true),
            Prop::HllPrecision(Some(3)),
            Prop::NVal(N_VAL_MAX + 1),
            Prop::NodeConfirms(u32::MAX),
            Prop::Backend(Some(long.clone())),
            Prop::Linkfun(ModFun { module: long.clone(), function: Bytes::new() }),
            Prop::Precommit(vec![Hook::Named(long)]),
            Prop::Postcommit(hooks),
        ] {
            let name = bad.name();
            let error = BucketProps::default().with(&[bad]);
            assert!(
                matches!(&error, Err(Error::InvalidProps(list)) if list[0].0 == name),
                "{name}: {error:?}"
            );
        }
        let same = [Prop::Consistent(false), Prop::WriteOnce(false), Prop::Datatype(None)];
        assert_eq!(BucketProps::default().with(&same), Ok(BucketProps::default()));
    }

    #[test]
    fn last_write_wins_excludes_dvv() {
        let both = [Prop::LastWriteWins(true), Prop::DvvEnabled(true)];
        assert!(matches!(BucketProps::default().with(&both), Err(Error::InvalidProps(_))));
    }
}
