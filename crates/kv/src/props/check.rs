//! Allowed values of properties, with Riak's words for errors.

use super::{
    BucketProps, CONSISTENT_N_VAL_MAX, HOOKS_MAX, Hook, ModFun, N_VAL_MAX, PROP_BYTES_MAX, Prop, Reason,
    TTL_MAX,
};
use crate::error::Error;
use crate::quorum::Quorum;

/// The search index of a bucket that is in none.
const NO_SEARCH_INDEX: &[u8] = b"_dont_index_";

/// What the properties belong to, which decides what of them is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A bucket of the default type, which cannot have what a type decides for good.
    UntypedBucket,
    /// A bucket of another type, or that type once it is active.
    Typed,
    /// A type that is not active.
    NewType,
}

impl BucketProps {
    /// These properties with `changes`, all of them or none. Of a property named twice the last counts.
    ///
    /// # Errors
    /// [`Error::InvalidProps`] with a reason for each that cannot be.
    pub fn changed(&self, changes: &[Prop], subject: Subject) -> Result<BucketProps, Error> {
        let mut errors: Vec<(&'static str, Reason)> = Vec::new();
        let mut props = self.clone();
        let write_once = self.write_once || changes.contains(&Prop::WriteOnce(true));
        for change in changes {
            let checked = check_fixed(change, self, subject, write_once)
                .and_then(|()| check_absent(change, self))
                .and_then(|()| check(change));
            match checked {
                Ok(()) => props.set(change.clone()),
                Err(reason) => errors.push((change.name(), reason)),
            }
        }
        errors.extend(quorums_above_n_val(self, &props, changes));
        errors.extend(unfit_for_groups(&props));
        if props.last_write_wins && props.dvv_enabled {
            let text = "If last_write_wins is true, dvv_enabled must be false";
            errors.push(("dvv_enabled", Reason::Text(text.into())));
        }
        if errors.is_empty() { Ok(props) } else { Err(Error::InvalidProps(errors)) }
    }
}

/// A quorum above the number of copies would refuse every request: none may be changed to one. Riak takes it, and fails
/// later, as both do where the number of copies becomes less than a quorum that there was.
fn quorums_above_n_val(
    before: &BucketProps,
    after: &BucketProps,
    changes: &[Prop],
) -> Vec<(&'static str, Reason)> {
    let quorums = |props: &BucketProps| {
        let BucketProps { r, w, pr, pw, dw, rw, .. } = *props;
        let confirms = Quorum::Exactly(props.node_confirms);
        [("r", r), ("w", w), ("pr", pr), ("pw", pw), ("dw", dw), ("rw", rw), ("node_confirms", confirms)]
    };
    let n_val = after.n_val;
    let above = |((name, quorum), (_, quorum_before))| match quorum {
        Quorum::Exactly(count) if count > n_val && quorum != quorum_before => {
            let is_changed = changes.iter().any(|change| change.name() == name);
            let what = format!(
                "{name} is {count}: it must be at most n_val, the number of copies, which is {n_val}"
            );
            is_changed.then_some((name, Reason::Text(what)))
        }
        _ => None,
    };
    quorums(after).into_iter().zip(quorums(before)).filter_map(above).collect()
}

/// Properties that a group of a consistent type cannot keep to.
fn unfit_for_groups(props: &BucketProps) -> Vec<(&'static str, Reason)> {
    let most = CONSISTENT_N_VAL_MAX;
    let hooks = "no commit hooks run in consistent bucket types";
    let unfit = [
        ("n_val", props.n_val > most, format!("{most} is the largest n_val of a consistent type")),
        ("ttl", props.ttl > 0, "objects of consistent bucket types do not end".to_owned()),
        ("precommit", !props.precommit.is_empty(), hooks.to_owned()),
        ("postcommit", !props.postcommit.is_empty(), hooks.to_owned()),
    ];
    let told = unfit.into_iter().filter(|(_, is_unfit, _)| props.consistent && *is_unfit);
    told.map(|(name, _, text)| (name, Reason::Text(text))).collect()
}

/// Checks what cannot change once there are objects.
fn check_fixed(
    change: &Prop,
    current: &BucketProps,
    subject: Subject,
    write_once: bool,
) -> Result<(), Reason> {
    match (change, subject) {
        (Prop::Datatype(wanted), _) if *wanted == current.datatype => Ok(()),
        (Prop::Datatype(_), Subject::NewType | Subject::Typed) if write_once => {
            text("Write once buckets must not have datatype defined")
        }
        (Prop::Datatype(_), Subject::Typed) => text("`datatype` must not be defined."),
        (Prop::Datatype(name), _) => {
            let name = name.as_deref().unwrap_or_default().escape_ascii();
            text(format!("{name} not supported for bucket datatype property"))
        }
        (Prop::Consistent(wanted), _) if *wanted == current.consistent => Ok(()),
        (Prop::Consistent(_), Subject::NewType) if !write_once => Ok(()),
        (Prop::Consistent(_), Subject::NewType) => text("Write once buckets must not be consistent=true"),
        // Riak says so of every type.
        (Prop::Consistent(true), Subject::Typed) => text("Write once buckets must not be consistent=true"),
        (Prop::Consistent(_), _) => text("cannot update consistent property"),
        (Prop::NVal(wanted), Subject::Typed) if current.consistent && *wanted != current.n_val => {
            text("n_val cannot be modified for existing consistent type")
        }
        (Prop::WriteOnce(wanted), _) if *wanted == current.write_once => Ok(()),
        (Prop::WriteOnce(_), Subject::UntypedBucket) => text("cannot update write_once property"),
        (Prop::WriteOnce(true), Subject::Typed) => text("Cannot set existing bucket type to `write_once`"),
        (Prop::WriteOnce(false), Subject::Typed) => {
            text("Cannot modify write_once property once set to true")
        }
        _ => Ok(()),
    }
}

/// Refuses what names something that is not here, unless it is set already.
fn check_absent(change: &Prop, current: &BucketProps) -> Result<(), Reason> {
    match change {
        Prop::Backend(wanted) if *wanted != current.backend => text(
            "no backend can be chosen by a property: the option --type-backends of a node gives a bucket type its own",
        ),
        Prop::Search(Some(true)) if current.search != Some(true) => {
            text("there is no search: Riak KV 3 has dropped it too")
        }
        Prop::SearchIndex(Some(wanted))
            if wanted != NO_SEARCH_INDEX && current.search_index.as_ref() != Some(wanted) =>
        {
            text("there is no search index of this name: this store has no Solr")
        }
        Prop::ChashKeyfun(wanted) if *wanted != current.chash_keyfun && !is_built_in(wanted) => {
            text("there is no such function: riak_core_util has chash_std_keyfun and chash_bucketonly_keyfun")
        }
        _ => Ok(()),
    }
}

fn is_built_in(fun: &ModFun) -> bool {
    let functions: [&[u8]; 2] = [b"chash_std_keyfun", b"chash_bucketonly_keyfun"];
    fun.module == "riak_core_util" && functions.contains(&&fun.function[..])
}

/// Checks a value, whatever it is of.
fn check(change: &Prop) -> Result<(), Reason> {
    match change {
        Prop::NVal(n) if *n > N_VAL_MAX => text(format!("{N_VAL_MAX} is the largest n_val")),
        // Riak says so of zero as of what is no integer.
        Prop::NVal(0)
        | Prop::OldVclock(0)
        | Prop::YoungVclock(0)
        | Prop::BigVclock(0)
        | Prop::SmallVclock(0) => Err(Reason::Word("not_integer")),
        Prop::Pr(Quorum::Default)
        | Prop::R(Quorum::Default | Quorum::Exactly(0))
        | Prop::W(Quorum::Default | Quorum::Exactly(0))
        | Prop::Pw(Quorum::Default)
        | Prop::Dw(Quorum::Default)
        | Prop::Rw(Quorum::Default | Quorum::Exactly(0)) => Err(Reason::Word("not_valid_quorum")),
        Prop::Precommit(hooks) | Prop::Postcommit(hooks) => check_hooks(hooks),
        Prop::ChashKeyfun(fun) | Prop::Linkfun(fun) => check_fun(fun),
        Prop::Backend(Some(name)) | Prop::SearchIndex(Some(name)) | Prop::Datatype(Some(name)) => {
            check_len(name)
        }
        Prop::HllPrecision(Some(bits)) if !(4..=16).contains(bits) => {
            text("hll_precision must be an integer from 4 to 16")
        }
        Prop::Ttl(seconds) if *seconds > TTL_MAX => text(format!("{TTL_MAX} is the largest ttl")),
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

fn text(text: impl Into<String>) -> Result<(), Reason> {
    Err(Reason::Text(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn reasons(result: Result<BucketProps, Error>) -> Vec<(&'static str, String)> {
        let Err(Error::InvalidProps(errors)) = result else { panic!("{result:?}") };
        let words = errors.into_iter().map(|(name, reason)| match reason {
            Reason::Word(word) => (name, word.to_owned()),
            Reason::Text(text) => (name, text),
        });
        words.collect()
    }

    fn only(change: Prop, of: &BucketProps, subject: Subject) -> String {
        let mut errors = reasons(of.changed(&[change], subject));
        assert_eq!(errors.len(), 1);
        errors.remove(0).1
    }

    #[test]
    fn a_change_leaves_the_rest() {
        let props = BucketProps::default();
        let changed = props.with(&[Prop::AllowMult(true), Prop::NVal(2), Prop::NVal(5)]).unwrap();
        assert_eq!(changed, BucketProps { allow_mult: true, n_val: 5, ..props });
    }

    #[test]
    fn bad_properties_are_told_one_by_one_and_nothing_changes() {
        let errors = reasons(BucketProps::default().with(&[
            Prop::NVal(0),
            Prop::AllowMult(true),
            Prop::R(Quorum::Default),
            Prop::W(Quorum::Exactly(0)),
            Prop::Datatype(Some(Bytes::from_static(b"set"))),
            Prop::BigVclock(0),
        ]));
        let expected = [
            ("n_val", "not_integer"),
            ("r", "not_valid_quorum"),
            ("w", "not_valid_quorum"),
            ("datatype", "set not supported for bucket datatype property"),
            ("big_vclock", "not_integer"),
        ];
        assert_eq!(errors, expected.map(|(name, text)| (name, text.to_owned())));
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
            Prop::Ttl(TTL_MAX + 1),
            Prop::Backend(Some(long.clone())),
            Prop::Linkfun(ModFun { module: long.clone(), function: Bytes::new() }),
            Prop::Precommit(vec![Hook::Named(long)]),
            Prop::Postcommit(hooks),
        ] {
            let name = bad.name();
            assert_eq!(reasons(BucketProps::default().with(&[bad]))[0].0, name);
        }
        let same = [Prop::Consistent(false), Prop::WriteOnce(false), Prop::Datatype(None)];
        assert_eq!(BucketProps::default().with(&same), Ok(BucketProps::default()));
    }

    #[test]
    fn quorums_are_at_most_n_val() {
        let props = BucketProps::default();
        let too_many =
            |name: &str| format!("{name} is 4: it must be at most n_val, the number of copies, which is 3");
        let four = Quorum::Exactly(4);
        for change in [
            Prop::R(four),
            Prop::W(four),
            Prop::Pr(four),
            Prop::Pw(four),
            Prop::Dw(four),
            Prop::Rw(four),
            Prop::NodeConfirms(4),
        ] {
            let name = change.name();
            assert_eq!(only(change.clone(), &props, Subject::UntypedBucket), too_many(name));
            let both = [change, Prop::NVal(4)];
            assert!(props.with(&both).is_ok(), "with as many copies: {name}");
        }
        let all = props.with(&[Prop::W(Quorum::Exactly(3)), Prop::R(Quorum::All)]).unwrap();
        assert!(all.with(&[Prop::NVal(2)]).is_ok(), "as in Riak, requests say what is wrong");
        // What was stored by an older program keeps nobody from changing the rest.
        let older = BucketProps { w: Quorum::Exactly(5), ..BucketProps::default() };
        assert!(older.with(&[Prop::AllowMult(true), Prop::W(Quorum::Exactly(5))]).is_ok());
        assert!(older.with(&[Prop::NVal(4)]).is_ok());
    }

    #[test]
    fn what_is_not_there_is_refused_unless_it_is_set_already() {
        let name = |name: &'static str| Some(Bytes::from_static(name.as_bytes()));
        let fun = |module, function| Prop::ChashKeyfun(ModFun::fixed(module, function));
        for subject in [Subject::UntypedBucket, Subject::Typed, Subject::NewType] {
            for absent in [
                Prop::Backend(name("custom")),
                Prop::Search(Some(true)),
                Prop::SearchIndex(name("idx")),
                fun("riak_core_util", "other"),
                fun("mine", "chash_std_keyfun"),
            ] {
                let props = BucketProps::default();
                let errors = reasons(props.changed(std::slice::from_ref(&absent), subject));
                assert!(errors.len() == 1 && errors[0].0 == absent.name() && errors[0].1.contains(' '));
                // As an older program has stored it.
                let mut older = props;
                older.set(absent.clone());
                let again = older.changed(&[absent, Prop::NVal(2)], subject);
                assert_eq!(again, Ok(BucketProps { n_val: 2, ..older }));
            }
            for harmless in [
                Prop::Search(Some(false)),
                Prop::SearchIndex(name("_dont_index_")),
                fun("riak_core_util", "chash_bucketonly_keyfun"),
                Prop::Precommit(vec![Hook::Named(Bytes::from_static(b"js"))]),
                Prop::Linkfun(ModFun::fixed("m", "f")),
            ] {
                assert!(BucketProps::default().changed(&[harmless], subject).is_ok());
            }
        }
    }

    #[test]
    fn last_write_wins_excludes_dvv() {
        let both = [Prop::LastWriteWins(true), Prop::DvvEnabled(true)];
        let text = "If last_write_wins is true, dvv_enabled must be false".to_owned();
        assert_eq!(reasons(BucketProps::default().with(&both)), [("dvv_enabled", text.clone())]);
        let new = BucketProps::of_new_type();
        let wins = [Prop::LastWriteWins(true)];
        assert_eq!(reasons(new.changed(&wins, Subject::NewType)), [("dvv_enabled", text)]);
        let sound = [Prop::LastWriteWins(true), Prop::DvvEnabled(false)];
        assert!(new.changed(&sound, Subject::NewType).is_ok());
    }

    #[test]
    fn a_consistent_type_is_new_and_keeps_what_its_groups_go_by() {
        let consistent = |more: Vec<Prop>| {
            BucketProps::of_new_type()
                .changed(&[vec![Prop::Consistent(true)], more].concat(), Subject::NewType)
        };
        let props = consistent(Vec::new()).unwrap();
        assert!(props.consistent);
        assert_eq!(
            only(Prop::Consistent(false), &props, Subject::Typed),
            "cannot update consistent property"
        );
        let untyped = BucketProps::default();
        assert_eq!(
            only(Prop::Consistent(true), &untyped, Subject::UntypedBucket),
            "cannot update consistent property"
        );
        for n in [1, 2, 5, 65] {
            let text = "n_val cannot be modified for existing consistent type";
            assert_eq!(only(Prop::NVal(n), &props, Subject::Typed), text);
        }
        let same = [Prop::NVal(3), Prop::Consistent(true)];
        assert_eq!(props.changed(&same, Subject::Typed), Ok(props.clone()));
        assert_eq!(
            only(Prop::WriteOnce(true), &props, Subject::Typed),
            "Cannot set existing bucket type to `write_once`"
        );

        let hook = || vec![Hook::Named(Bytes::from_static(b"h"))];
        for unfit in [Prop::Ttl(60), Prop::Precommit(hook()), Prop::Postcommit(hook()), Prop::NVal(8)] {
            let name = unfit.name();
            assert_eq!(reasons(consistent(vec![unfit.clone()]))[0].0, name);
            assert_eq!(reasons(props.changed(&[unfit], Subject::Typed))[0].0, name);
        }
        assert!(consistent(vec![Prop::NVal(7)]).is_ok());
        let ignored = [
            Prop::R(Quorum::One),
            Prop::Pw(Quorum::All),
            Prop::NotfoundOk(false),
            Prop::AllowMult(false),
            Prop::LastWriteWins(true),
            Prop::DvvEnabled(false),
        ];
        assert!(props.changed(&ignored, Subject::Typed).is_ok());
        let once = consistent(vec![Prop::WriteOnce(true)]);
        let text = "Write once buckets must not be consistent=true".to_owned();
        assert_eq!(reasons(once), [("consistent", text)]);
    }

    #[test]
    fn write_once_is_for_new_types_and_for_good() {
        let new = BucketProps::of_new_type();
        let set = || Prop::Datatype(Some(Bytes::from_static(b"set")));
        let once = new.changed(&[Prop::WriteOnce(true)], Subject::NewType).unwrap();
        assert!(once.write_once);
        assert_eq!(
            only(Prop::WriteOnce(false), &once, Subject::Typed),
            "Cannot modify write_once property once set to true"
        );
        assert_eq!(
            only(Prop::WriteOnce(true), &new, Subject::Typed),
            "Cannot set existing bucket type to `write_once`"
        );
        assert_eq!(
            only(set(), &once, Subject::Typed),
            "Write once buckets must not have datatype defined",
            "also after the type is active"
        );
        assert_eq!(only(set(), &new, Subject::Typed), "`datatype` must not be defined.");
        assert_eq!(
            only(Prop::Consistent(true), &new, Subject::Typed),
            "Write once buckets must not be consistent=true",
            "Riak says so of every type"
        );
        let both = [Prop::WriteOnce(true), set(), Prop::Consistent(true)];
        let errors = reasons(new.changed(&both, Subject::NewType));
        assert_eq!(errors.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["datatype", "consistent"]);
        assert!(once.changed(&[Prop::WriteOnce(true), Prop::NVal(2)], Subject::Typed).is_ok());
        assert!(new.changed(&[Prop::AllowMult(false)], Subject::Typed).is_ok());
    }
}
