//! `workload.toml`, read strictly: an unknown key, a value out of range and a combination that cannot be run are
//! refused with their line.

use super::fields::{Fields, Source};
use super::index::{self, Index, Indexes};
use super::{CheckPlan, DriverKind, Job, Load, Op, Operation, Plant, Retry, WarmUp, Workload};
use super::{engine, peers};
use crate::Error;
use crate::check::Cause;
use crate::driver::ErrorKind;
use crate::keys::{Shape, UNIQUE_FROM};
use crate::names::Naming;
use crate::values::{STAMP_LEN_MIN, Size, VALUE_MAX};
use os::Address;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CONCURRENCY_DEFAULT: u64 = 16;
/// Each has a socket at least in part: above this the generator would measure itself.
const CONCURRENCY_MAX: u64 = 100_000;
const THREADS_MAX: u64 = 256;
const PIPELINE_MAX: u64 = 1024;
const WARM_UP_DEFAULT: Duration = Duration::from_secs(10);
const WARM_UP_MAX_DEFAULT: Duration = Duration::from_secs(120);
const DURATION_DEFAULT: Duration = Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const RATE_MAX: f64 = 1e8;
const VALUE_DEFAULT: usize = 1000;
const DIGITS_DEFAULT: u64 = 12;
/// Some 40 bytes each: a run that compares everything stays below 200 MB.
const KEYS_MAX_DEFAULT: u64 = 4_000_000;
const AUDIT_DEFAULT: u64 = 10_000;
/// A key in Riak has at most so many bytes.
const KEY_LEN_MAX: usize = 65_535;
const OPERATIONS_MAX: usize = results::LABELS_MAX;

const QUORUMS: [&str; 6] = ["r", "w", "pr", "pw", "dw", "n_val"];

impl Workload {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Workload, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        Workload::parse(&text, &path.display().to_string())
    }

    /// Reads a text; `name` is for messages.
    pub fn parse(text: &str, name: &str) -> Result<Workload, Error> {
        let mut top = Source { name, text }.fields()?;
        let driver =
            top.word("driver", &DriverKind::ALL.map(|kind| (kind.name(), kind)))?.unwrap_or(DriverKind::Pb);
        let default_bucket = top.text("bucket")?.unwrap_or_else(|| "bench".to_owned());
        let check = check(&mut top)?;
        let (naming, default_keys) = keys(&mut top)?;
        let (default_size, semi_compressible) = value(&mut top)?;
        let indexes = top.each("index")?.into_iter().map(index::index).collect::<Result<Vec<_>, _>>()?;
        let defaults = Defaults { bucket: default_bucket, keys: default_keys, size: default_size, indexes };
        let operations = top.each("operation")?.into_iter().map(|it| operation(it, &defaults, &check));
        let operations = operations.collect::<Result<Vec<_>, _>>()?;
        let jobs = top
            .each("job")?
            .into_iter()
            .map(|it| job(it, &defaults, &check))
            .collect::<Result<Vec<_>, _>>()?;
        if operations.is_empty() {
            return Err(top.error("there is no [[operation]]"));
        }
        let all: Vec<&Operation> = operations.iter().chain(jobs.iter().map(|job| &job.operation)).collect();
        let labels: Vec<&str> = all.iter().map(|it| &*it.label).collect();
        if labels.len() > OPERATIONS_MAX {
            return Err(top.error(format!("more than {OPERATIONS_MAX} operations")));
        }
        if let Some(twice) = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
            return Err(top.error(format!("two operations are called {:?}", twice.1)));
        }
        if let Some(twice) = defaults.twice() {
            return Err(top.error(format!("two indexes have the field {twice}")));
        }
        let asks = all.iter().any(|it| it.op == Op::Query);
        if asks && driver == DriverKind::Http && naming == Naming::Binary {
            return Err(top.error("HTTP tells keys as text: queries are not for keys of format binary"));
        }
        if operations.iter().map(|it| u64::from(it.weight)).sum::<u64>() == 0 {
            return Err(top.error("all weights are 0"));
        }
        let engine = engine::engine(&mut top, driver, &naming, &all)?;
        let address = |text: &str| text.parse::<Address>();
        let path = |text: &str| Ok(PathBuf::from(text));
        let addresses = match top.list("addresses", address)? {
            Some(addresses) if addresses.is_empty() => return Err(top.error("addresses has no address")),
            Some(addresses) => addresses,
            None => vec![address(driver.address_default()).map_err(Error::Unusable)?],
        };
        let concurrency = top.number("concurrency", 1, CONCURRENCY_MAX)?.unwrap_or(CONCURRENCY_DEFAULT);
        let threads = top.number("threads", 1, THREADS_MAX)?.unwrap_or(1);
        if threads > concurrency {
            return Err(top.error("there are more threads than operations outstanding"));
        }
        let (duration, operations_max) =
            (top.duration("duration")?, top.number("operations_max", 1, u64::MAX)?);
        let pids = top.numbers("pids")?.unwrap_or_default();
        let pids = pids.into_iter().map(u32::try_from).collect::<Result<Vec<_>, _>>();
        let workload = Workload {
            name: top.text("name")?.unwrap_or_else(|| stem(name)),
            text: text.to_owned(),
            file: name.to_owned(),
            driver,
            addresses,
            clients: Vec::new(),
            stats: top.list("stats", address)?.unwrap_or_default(),
            pids: pids.map_err(|_| top.error("pids has a number that is no process"))?,
            data: top.list("data", path)?.unwrap_or_default(),
            bucket_type: top.text("bucket_type")?.filter(|name| name != "default"),
            is_consistent: top.flag("consistent")?.unwrap_or(false),
            history: top.parsed("history", path)?,
            seed: top.number("seed", 0, u64::MAX)?.unwrap_or(1),
            concurrency: narrow(concurrency),
            threads: narrow(threads),
            pipeline: narrow(top.number("pipeline", 1, PIPELINE_MAX)?.unwrap_or(1)),
            load: load(&mut top)?,
            warm_up: warm_up(&mut top)?,
            duration: duration.or(operations_max.is_none().then_some(DURATION_DEFAULT)),
            operations_max,
            timeout: top.duration("timeout")?.unwrap_or(TIMEOUT_DEFAULT),
            naming,
            semi_compressible,
            indexes: defaults.indexes,
            state: top.parsed("state", path)?,
            operations,
            jobs,
            retry: retry(&mut top)?,
            check,
            plant: plant(&mut top)?,
            engine,
            peer: peers::peer(&mut top, driver)?,
            quorums: quorums(&mut top)?,
        };
        for (name, is_said) in [
            ("bucket_type", workload.bucket_type.is_some()),
            ("quorums", !workload.quorums.is_empty()),
            ("stats", !workload.stats.is_empty()),
        ] {
            if is_said && driver.is_peer() {
                return Err(top.error(format!("{} has no {name}: that is Riak's", driver.name())));
            }
        }
        if let Some(what) = workload.inconsistency() {
            return Err(top.error(what));
        }
        top.finish()?;
        Ok(workload)
    }

    /// Why it cannot be run on a consistent bucket type, or without one, or with a history.
    fn inconsistency(&self) -> Option<String> {
        let is_riak = matches!(self.driver, DriverKind::Pb | DriverKind::Http);
        if self.is_consistent && !(is_riak && self.bucket_type.is_some()) {
            return Some("consistent = true is for a bucket_type, and the drivers pb and http".to_owned());
        }
        let jobs = self.jobs.iter().map(|job| &job.operation);
        let conditional = self.operations.iter().chain(jobs).find(|it| it.op.is_conditional());
        if let Some(it) = conditional.filter(|_| !self.is_consistent) {
            return Some(format!("{}: only a workload with consistent = true has such operations", it.label));
        }
        self.history.as_ref().and_then(|_| self.history_refusal())
    }

    /// Why no history of it can be written.
    pub(crate) fn history_refusal(&self) -> Option<String> {
        let has_siblings = matches!(self.driver, DriverKind::Pb | DriverKind::Http) && !self.is_consistent;
        if has_siblings {
            return Some(
                "a history of a bucket type needs consistent = true: others may have siblings".to_owned(),
            );
        }
        let is_checked = self.check.reads && self.check.sample == 1;
        (!is_checked)
            .then(|| "a history needs every value: reads = true and sample = 1 in [check]".to_owned())
    }

    /// All labels, in the order of the results.
    pub fn labels(&self) -> Vec<String> {
        let jobs = self.jobs.iter().map(|job| &job.operation);
        self.operations.iter().chain(jobs).map(|it| it.label.clone()).collect()
    }
}

const OPS: [(&str, Op); 13] = [
    ("get", Op::Get),
    ("head", Op::Head),
    ("put", Op::Put),
    ("update", Op::Update),
    ("put_once", Op::PutOnce),
    ("cas", Op::Cas),
    ("delete", Op::Delete),
    ("delete_if", Op::DeleteIf),
    ("query", Op::Query),
    ("list-keys", Op::ListKeys),
    ("list-buckets", Op::ListBuckets),
    ("ping", Op::Ping),
    ("reconnect", Op::Reconnect),
];

/// What an operation has that does not say otherwise.
struct Defaults {
    bucket: String,
    keys: Option<Shape>,
    size: Size,
    indexes: Vec<Index>,
}

impl Defaults {
    /// A field that two indexes have.
    fn twice(&self) -> Option<&str> {
        let fields: Vec<&str> = self.indexes.iter().map(|index| &*index.field).collect();
        fields.iter().enumerate().find(|(at, field)| fields[..*at].contains(field)).map(|(_, field)| *field)
    }
}

fn operation(mut it: Fields<'_>, defaults: &Defaults, check: &CheckPlan) -> Result<Operation, Error> {
    let operation = operation_of(&mut it, defaults, check)?;
    it.finish()?;
    Ok(operation)
}

fn operation_of(it: &mut Fields<'_>, defaults: &Defaults, check: &CheckPlan) -> Result<Operation, Error> {
    let op = it.word("op", &OPS)?.ok_or_else(|| it.error("an operation without op"))?;
    let name = OPS.iter().find(|(_, known)| *known == op).map_or("", |(name, _)| name);
    let label = it.text("label")?.unwrap_or_else(|| name.to_owned());
    if label.is_empty() || label.len() > 64 || label.contains(char::is_control) {
        return Err(it.error("a label has 1 to 64 characters"));
    }
    let weight = narrow(it.number("weight", 0, 1_000_000_000)?.unwrap_or(1));
    let bucket = it.text("bucket")?.unwrap_or_else(|| defaults.bucket.clone());
    let own = it.inner("keys")?.map(shape).transpose()?;
    let keys = if op.has_key() { own.or_else(|| defaults.keys.clone()) } else { None };
    if op.has_key() && keys.is_none() {
        return Err(it.error(format!("{label}: neither it nor the workload has [keys]")));
    }
    let size = match it.inner("value")? {
        Some(mut value) => {
            let size = size(&mut value)?;
            value.finish()?;
            size
        }
        None => defaults.size,
    };
    let least = match size {
        Size::Fixed(min) | Size::Uniform { min, .. } | Size::Exponential { min, .. } => min,
    };
    if check.reads && least < STAMP_LEN_MIN && op.writes_value() {
        let what = format!("{label}: values of less than {STAMP_LEN_MIN} bytes have no room to be checked; ");
        return Err(it.error(what + "make them larger, or set reads = false in [check]"));
    }
    let listed = if defaults.indexes.is_empty() { Indexes::None } else { Indexes::Listed };
    let indexes = it.word("indexes", &[("none", Indexes::None), ("person", Indexes::Person)])?;
    let query = it.inner("query")?.map(|it| index::query(it, &defaults.indexes, defaults.keys.as_ref()));
    let query = query.transpose()?;
    if (op == Op::Query) != query.is_some() {
        return Err(it.error(format!("{label}: a query has a [query], and nothing else has one")));
    }
    Ok(Operation { label, op, weight, bucket, keys, size, indexes: indexes.unwrap_or(listed), query })
}

fn job(mut it: Fields<'_>, defaults: &Defaults, check: &CheckPlan) -> Result<Job, Error> {
    let every = it.duration("every")?.filter(|every| !every.is_zero());
    let every = every.ok_or_else(|| it.error("a job says how often it runs: every = \"60s\""))?;
    let operation = operation_of(&mut it, defaults, check)?;
    it.finish()?;
    Ok(Job { operation, every })
}

/// `[keys]`: the naming, and the distribution of operations without their own.
fn keys(top: &mut Fields<'_>) -> Result<(Naming, Option<Shape>), Error> {
    let decimal = |prefix, digits: u64| Naming::Decimal { prefix, digits: digits as usize };
    let Some(mut it) = top.inner("keys")? else { return Ok((decimal(String::new(), DIGITS_DEFAULT), None)) };
    let prefix = it.text("prefix")?.unwrap_or_default();
    let digits = it.number("digits", 1, 20)?.unwrap_or(DIGITS_DEFAULT);
    let binary = it.word("format", &[("decimal", false), ("binary", true)])?.unwrap_or(false);
    let shape = shape(it)?;
    let naming = match &shape {
        Shape::File { lines, .. } => Naming::Lines(Arc::clone(lines)),
        _ if binary => Naming::Binary,
        _ => decimal(prefix, digits),
    };
    Ok((naming, Some(shape)))
}

pub(super) fn shape(mut it: Fields<'_>) -> Result<Shape, Error> {
    let kind = it.text("kind")?.ok_or_else(|| it.error("keys have a kind"))?;
    let count = |it: &mut Fields<'_>| {
        it.number("count", 1, UNIQUE_FROM / 64)?.ok_or_else(|| it.error("keys have a count"))
    };
    let theta = |it: &mut Fields<'_>| it.real("theta", 0.0, 0.9999).map(|theta| theta.unwrap_or(0.99));
    let shape = match &*kind {
        "sequential" => {
            let start = it.number("start", 0, UNIQUE_FROM / 64)?.unwrap_or(0);
            Shape::Sequential { start, count: count(&mut it)? }
        }
        "uniform" => Shape::Uniform { count: count(&mut it)? },
        "zipf" => {
            let scrambled = it.flag("scrambled")?.unwrap_or(true);
            Shape::Zipf { count: count(&mut it)?, theta: theta(&mut it)?, scrambled }
        }
        "latest" => Shape::Latest { theta: theta(&mut it)? },
        "hotspot" => {
            let hot_keys = it.real("hot_keys", 0.0, 1.0)?.unwrap_or(0.2);
            let hot_draws = it.real("hot_draws", 0.0, 1.0)?.unwrap_or(0.8);
            Shape::Hotspot { count: count(&mut it)?, hot_keys, hot_draws }
        }
        "eighty-twenty" => Shape::Hotspot { count: count(&mut it)?, hot_keys: 0.2, hot_draws: 0.8 },
        "pareto" => Shape::Pareto { count: count(&mut it)?, truncated: false },
        "truncated-pareto" => Shape::Pareto { count: count(&mut it)?, truncated: true },
        "file" => {
            let path = it.text("path")?.ok_or_else(|| it.error("keys of a file have a path"))?;
            let in_order = it.word("order", &[("sequential", true), ("uniform", false)])?.unwrap_or(true);
            Shape::File { lines: Arc::new(lines(&it, Path::new(&path))?), in_order }
        }
        "present" => Shape::Present { loaded: it.number("loaded", 0, UNIQUE_FROM / 64)?.unwrap_or(0) },
        "unique" => Shape::Unique,
        "own" => Shape::Own,
        "own-oldest" => Shape::OwnOldest,
        _ => return Err(it.error(format!("keys of kind {kind:?} are not known"))),
    };
    it.finish()?;
    Ok(shape)
}

fn lines(it: &Fields<'_>, path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let text = fs::read(path).map_err(Error::file(path))?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec);
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() || lines.iter().any(|line| line.len() > KEY_LEN_MAX) {
        return Err(
            it.error(format!("{} has no keys, or one of more than {KEY_LEN_MAX} bytes", path.display()))
        );
    }
    Ok(lines)
}

/// `[value]`: the size of values that have none of their own, and what all are made of.
fn value(top: &mut Fields<'_>) -> Result<(Size, bool), Error> {
    let Some(mut it) = top.inner("value")? else { return Ok((Size::Fixed(VALUE_DEFAULT), false)) };
    let bytes = it.word("bytes", &[("random", false), ("semi-compressible", true)])?.unwrap_or(false);
    let size = size(&mut it)?;
    it.finish()?;
    Ok((size, bytes))
}

fn size(it: &mut Fields<'_>) -> Result<Size, Error> {
    let max = VALUE_MAX as u64;
    let number = |it: &mut Fields<'_>, key: &str, default: usize| {
        it.number(key, 0, max).map(|number| number.map_or(default, |number| number as usize))
    };
    match &*it.text("kind")?.unwrap_or_else(|| "fixed".to_owned()) {
        "fixed" => Ok(Size::Fixed(number(it, "size", VALUE_DEFAULT)?)),
        "uniform" => {
            let (min, max) = (number(it, "min", 0)?, number(it, "max", VALUE_DEFAULT)?);
            if min > max {
                return Err(it.error("min is above max"));
            }
            Ok(Size::Uniform { min, max })
        }
        "exponential" => {
            let (min, mean) = (number(it, "min", 0)?, it.real("mean", 0.0, max as f64)?.unwrap_or(1000.0));
            let factor = it.real("factor", 1.0, 1000.0)?.unwrap_or(1.0);
            let chance = it.real("chance", 0.0, 1.0)?.unwrap_or(0.0);
            Ok(Size::Exponential { min, mean, factor, chance })
        }
        _ => Err(it.error("kind is not one of fixed, uniform, exponential")),
    }
}

fn load(top: &mut Fields<'_>) -> Result<Load, Error> {
    let Some(mut it) = top.inner("load")? else { return Ok(Load::Closed) };
    let kind = it.word("kind", &[("closed", 0), ("max", 0), ("fixed", 1), ("poisson", 2)])?.unwrap_or(0);
    let rate = it.real("rate", 0.001, RATE_MAX)?;
    let load = match (kind, rate) {
        (0, None) => Load::Closed,
        (1, Some(rate)) => Load::Fixed(rate),
        (2, Some(rate)) => Load::Poisson(rate),
        (0, Some(_)) => return Err(it.error("a closed loop has no rate")),
        _ => return Err(it.error("an open loop has a rate: operations a second")),
    };
    it.finish()?;
    Ok(load)
}

fn warm_up(top: &mut Fields<'_>) -> Result<WarmUp, Error> {
    let until = top.parsed("warm_up", |text| match text {
        "auto" => Ok(None),
        text => super::duration(text).map(Some),
    })?;
    let max = top.duration("warm_up_max")?;
    match (until, max) {
        (Some(None), max) => Ok(WarmUp::UntilSteady(max.unwrap_or(WARM_UP_MAX_DEFAULT))),
        (_, Some(_)) => Err(top.error("warm_up_max is for warm_up = \"auto\"")),
        (Some(Some(time)), None) => Ok(WarmUp::For(time)),
        (None, None) => Ok(WarmUp::For(WARM_UP_DEFAULT)),
    }
}

fn retry(top: &mut Fields<'_>) -> Result<Retry, Error> {
    let mut retry = Retry { attempts: 1, backoff: Duration::ZERO, on: Vec::new() };
    let Some(mut it) = top.inner("retry")? else { return Ok(retry) };
    retry.attempts = narrow(it.number("attempts", 1, 1000)?.unwrap_or(3));
    retry.backoff = it.duration("backoff")?.unwrap_or(Duration::ZERO);
    let known = |text: &str| {
        let is_known = ErrorKind::ALL.iter().any(|kind| kind.name() == text);
        is_known.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is no kind of error"))
    };
    retry.on = it.list("on", known)?.unwrap_or_default();
    it.finish()?;
    Ok(retry)
}

fn check(top: &mut Fields<'_>) -> Result<CheckPlan, Error> {
    let mut check = CheckPlan {
        reads: true,
        keys_max: KEYS_MAX_DEFAULT,
        sample: 1,
        audit: AUDIT_DEFAULT,
        tolerate: Vec::new(),
    };
    let Some(mut it) = top.inner("check")? else { return Ok(check) };
    check.reads = it.flag("reads")?.unwrap_or(true);
    check.keys_max = it.number("keys_max", 0, 1 << 32)?.unwrap_or(KEYS_MAX_DEFAULT);
    check.sample = it.number("sample", 1, 1 << 32)?.unwrap_or(1);
    check.audit = it.number("audit", 0, 100_000_000)?.unwrap_or(AUDIT_DEFAULT);
    let cause = |text: &str| {
        let known = Cause::ALL.into_iter().find(|cause| cause.name() == text);
        let names = || Cause::ALL.map(Cause::name).join(", ");
        known.ok_or_else(|| format!("{text:?} is not one of {}", names()))
    };
    check.tolerate = it.list("tolerate", cause)?.unwrap_or_default();
    it.finish()?;
    Ok(check)
}

fn plant(top: &mut Fields<'_>) -> Result<Plant, Error> {
    let Some(mut it) = top.inner("plant")? else { return Ok(Plant::default()) };
    let mut every = |name| it.number(name, 1, u64::MAX);
    let plant = Plant {
        drop_writes: every("drop_writes")?,
        stale_reads: every("stale_reads")?,
        drop_entries: every("drop_entries")?,
    };
    it.finish()?;
    Ok(plant)
}

fn quorums(top: &mut Fields<'_>) -> Result<BTreeMap<String, u32>, Error> {
    let Some(mut it) = top.inner("quorums")? else { return Ok(BTreeMap::new()) };
    let mut quorums = BTreeMap::new();
    for name in QUORUMS {
        if let Some(number) = it.number(name, 0, 64)? {
            quorums.insert(name.to_owned(), narrow(number));
        }
    }
    it.finish()?;
    Ok(quorums)
}

fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Of numbers whose range has been checked.
pub(super) fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("the range of this key fits")
}
