//! The check of a request by the policy, and the comparison of versions: the code that requests run, in this process.

use super::Context;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use security::{Access, Command, Needs, Permission, Policies, Policy, Slots, Target};
use std::hint::black_box;
use std::time::Instant;

/// Calls of one measurement.
const CALLS: u32 = 1_000_000;

/// Measurements of each row.
const ROUNDS: usize = 9;

/// Users, groups of each of them, and buckets with a grant, of a large policy.
const USERS: usize = 500;
const GROUPS: usize = 50;
const GROUPS_OF_USER: usize = 5;
const BUCKETS: usize = 1_000;

fn check_spec() -> Spec {
    Spec::new("checks/policy check, one grant", "ns", Some(Bar::AtMost(100.0)))
}

fn large_spec() -> Spec {
    Spec::new("checks/policy check, user of 5 groups with 100 grants", "ns", Some(Bar::AtMost(100.0)))
}

fn version_spec() -> Spec {
    Spec::new("checks/version compare", "ns", Some(Bar::AtMost(5.0)))
}

fn off_spec() -> Spec {
    Spec::new("checks/all checks of a request, security off", "ns", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![check_spec(), large_spec(), version_spec(), off_spec()]
}

/// Fills them.
pub fn run(_: &Context, report: &mut Report) -> Result<()> {
    let small = ["add-user ann", "grant riak_kv.get on default to ann", "enable"].map(str::to_owned);
    for (spec, lines) in [(check_spec(), small.to_vec()), (large_spec(), large())] {
        let (_policies, mut access) = connection(&lines)?;
        let needs = || Needs::of([Permission::Get], Target::Bucket(b"default", b"bucket-17"));
        access.begin(needs(), false).map_err(|denied| denied.to_string())?;
        report.push(spec.measured(&nanos(|| {
            black_box(access.begin(black_box(needs()), false)).ok();
        })))?;
    }
    let (policies, mut access) = connection(&small)?;
    report.push(version_spec().measured(&nanos(|| {
        black_box(black_box(&policies).renew(&mut access)).ok();
    })))?;
    report.push(off_spec().measured(&off_nanos()))
}

/// All that a request by protocol buffers asks of security that is off: before and after its execution.
pub(super) fn off_nanos() -> Vec<f64> {
    let (policies, mut access) = (Policies::new(), Access::default());
    let needs = || Needs::of([Permission::Get], Target::Bucket(b"default", b"bucket-17"));
    nanos(|| {
        let policies = black_box(&policies);
        let access = black_box(&mut access);
        black_box(policies.renew(access)).ok();
        black_box(access.mode());
        black_box(access.begin(black_box(needs()), false)).ok();
        black_box(access.limits());
        black_box(policies.renew(access)).ok();
        access.end();
        black_box(access.limits());
        black_box(access.take_denied());
        black_box(access.take_would_refuse());
    })
}

/// A policy with many users, groups and grants.
fn large() -> Vec<String> {
    let groups = (0..GROUPS).map(|group| format!("add-group g{group}"));
    let users = (0..USERS).map(|user| {
        let of_user = (0..GROUPS_OF_USER).map(|step| format!("g{}", (user + 10 * step) % GROUPS));
        let name = if user == 0 { "ann".to_owned() } else { format!("u{user}") };
        format!("add-user {name} groups={}", of_user.collect::<Vec<_>>().join(","))
    });
    let grants = (0..BUCKETS).map(|bucket| {
        format!("grant riak_kv.get,riak_kv.put on default bucket-{bucket} to g{}", bucket % GROUPS)
    });
    let own = ["grant riak_kv.get on default bucket-17 to g40", "enable"].map(str::to_owned);
    groups.chain(users).chain(grants).chain(own).collect()
}

/// A connection of `ann` under TLS.
fn connection(lines: &[String]) -> Result<(Policies, Access)> {
    let mut slots = Slots::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let command = Command::parse(&words).map_err(|error| format!("{line}: {error}"))?;
        let changes = command.plan(&slots, None).map_err(|error| format!("{line}: {error}"))?;
        slots.apply(&changes)?;
    }
    let (policies, mut access) = (Policies::new(), Access::default());
    policies.publish(Policy::compile(&slots, 1));
    policies.renew(&mut access).map_err(|denied| denied.to_string())?;
    access.secure();
    access.log_in(b"ann");
    Ok((policies, access))
}

/// Nanoseconds of a call, of each measurement.
fn nanos(mut call: impl FnMut()) -> Vec<f64> {
    let mut measure = || {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    measure();
    (0..ROUNDS).map(|_| measure()).collect()
}
