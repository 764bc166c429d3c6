//! A run: workers make the load, a sampler watches the machine, and the calling thread writes their figures.
//!
//! 1. Values' pool, the checker's table and one driver for each worker are made; connections are awaited.
//! 2. Each worker runs on a thread of its own: see `worker` and `state`. Jobs have a worker each.
//! 3. `collect` puts the seconds together and writes them; [`Control`] ends the load at its time.
//! 4. When all workers have ended, the summary is written and says whether the store was right.

mod audit;
mod collect;
mod control;
mod entries;
mod known;
mod pace;
mod person;
mod reach;
mod recorder;
mod resume;
mod sampler;
mod servers;
mod state;
mod suspects;
mod tally;
mod worker;

pub use control::{Control, Observer};
pub use servers::counters;

use crate::Error;
use crate::check::{Counts, Table};
use crate::driver::{Common, Driver, EngineDriver, Http, NullDriver, Pb, Planted, Pool as Connections, Sink};
use crate::history::Writer as HistoryWriter;
use crate::keys::{Inserted, Keys, Progress, Shape, unique_first};
use crate::login::{Login, ServerTls};
use crate::proc;
use crate::rng::{Rng, mix};
use crate::values::Pool;
use crate::workload::{DriverKind, Op, Operation, Plant, Workload};
use backends::shared::Shared as SharedStore;
use collect::{Collector, phase_event};
use pace::Pace;
use reach::Places;
use results::{FORMAT, Generator, Manifest, Summary, Writer, utc};
use resume::State as Resume;
use sampler::Sampler;
use state::{Part, Shared, State};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use worker::{Message, Worker};

/// How long connections may take before the load begins.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Which of several generators this is, and what it is called.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its number.
    pub index: u32,
    /// How many there are: each gets its share of rate, connections and keys.
    pub of: u32,
    /// The version of the program, and the commit it was built from.
    pub version: String,
    /// The command that was run.
    pub command: Vec<String>,
    /// Its login at the servers; none where they ask for none.
    pub login: Option<Login>,
}

impl Default for Identity {
    fn default() -> Identity {
        let (version, command) = (env!("CARGO_PKG_VERSION").to_owned(), std::env::args().collect());
        Identity { index: 0, of: 1, version, command, login: None }
    }
}

/// Runs a workload and writes its results to `dir`, which must be empty or missing.
///
/// Wrong results do not make this fail: they are in the summary's verdict.
pub fn run(
    workload: &Workload,
    dir: &Path,
    identity: &Identity,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Summary, Error> {
    if let Some(what) = workload.history.as_ref().and_then(|_| workload.history_refusal()) {
        return Err(Error::Unusable(what));
    }
    if identity.login.is_some() && !matches!(workload.driver, DriverKind::Pb | DriverKind::Http) {
        let name = workload.driver.name();
        return Err(Error::Unusable(format!("the driver {name} has no login: pb and http have one")));
    }
    let temporary = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let folder = workload.engine.folder.as_deref().unwrap_or(temporary.path());
    let places = Places::of(workload)?;
    let (watched, servers): (Vec<_>, Vec<_>) = servers::find(workload, &places, folder).into_iter().unzip();
    let drivers = Drivers::new(workload, &places, folder, identity.login.as_ref())?;
    let jobs = workload.jobs.len();
    let made = (0..workload.threads).map(|worker| drivers.make(worker, share(workload, worker)));
    let made: Vec<_> =
        made.chain((0..jobs).map(|at| drivers.make(workload.threads + at as u32, 1))).collect();
    let made = made.into_iter().collect::<Result<Vec<_>, _>>()?;

    let started_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64);
    let seed = mix(workload.seed ^ u64::from(identity.index));
    let generator = Generator {
        index: identity.index,
        of: identity.of,
        seed,
        run: mix(started_unix_ms ^ u64::from(std::process::id()) << 48) as u32,
        threads: workload.threads,
        started_unix_ms,
    };
    let manifest = manifest(workload, identity, &generator, servers);
    let mut writer = Writer::create(dir, manifest.clone())?;
    let history = workload.history.as_deref().map(|path| HistoryWriter::create(path, &workload.name));
    let history = history.transpose()?;
    writer.event(&phase_event(0.0, "the warm-up begins"))?;
    observer.started(&manifest);

    let operations: Vec<Operation> =
        workload.operations.iter().chain(workload.jobs.iter().map(|job| &job.operation)).cloned().collect();
    // A history needs the number of every write.
    let keys_max = if history.is_some() { usize::MAX } else { workload.check.keys_max as usize };
    let (table, counts) = (Table::new(keys_max, workload.check.sample), Counts::default());
    let processes = history.as_ref().map(|_| AtomicU64::new(0));
    let pool = Pool::new(workload.semi_compressible, workload.seed);
    let resume = Resume::open(workload.state.as_deref(), identity.index)?;
    let has_own_stores = workload.driver == DriverKind::Engine && !workload.engine.is_shared;
    let setting = Setting {
        workload,
        operations: &operations,
        table: &table,
        counts: &counts,
        pool: &pool,
        processes: processes.as_ref(),
    };
    let (to_collector, incoming) = mpsc::channel();
    let begin = control.begin();
    let plan = (workload.warm_up, workload.duration);
    let mut collector = Collector::new((writer, history), workload.labels(), control, plan, made.len());
    let (ended, mixing) = (AtomicBool::new(false), AtomicUsize::new(workload.threads as usize));

    let collected = std::thread::scope(|scope| {
        for (at, driver) in made.into_iter().enumerate() {
            let worker = at as u32;
            let out = to_collector.clone();
            let owners = if has_own_stores { (worker, workload.threads + jobs as u32) } else { (0, 1) };
            let owner = (identity.index * owners.1 + owners.0, identity.of * owners.1);
            let shared = setting.shared(&generator, owner);
            let part = setting.part(worker, identity, &generator, &resume);
            let (mut pace, mut rng) = (Pace::Closed, Rng::part(seed, u64::from(worker) << 8));
            if worker < workload.threads {
                let place = identity.index * workload.threads + worker;
                pace = Pace::part(workload.load, place, identity.of * workload.threads, &mut rng);
            } else if let Some(job) = workload.jobs.get((worker - workload.threads) as usize) {
                pace = Pace::every(job.every);
            }
            let budget = setting.budget(worker, identity);
            let (resume, mixing, is_job) = (&resume, &mixing, worker >= workload.threads);
            scope.spawn(move || {
                let state = State::new(shared, part, begin, out.clone());
                let worker = Worker {
                    driver,
                    state,
                    pace,
                    budget,
                    mixing,
                    is_job,
                    control,
                    out,
                    timeout: workload.timeout,
                };
                worker.run(resume);
            });
        }
        let (samples, sampler, ended) = (to_collector.clone(), Sampler::new(&watched), &ended);
        scope.spawn(move || {
            sampler.run(begin, ended, control, |sample| {
                // Nobody listens only when the run has failed.
                samples.send(Message::Sample(Box::new(sample))).ok();
            });
            samples.send(Message::SamplerEnded).ok();
        });
        drop(to_collector);
        let collected = collect(&mut collector, &incoming, observer);
        if collected.is_err() {
            control.stop();
        }
        ended.store(true, Ordering::Relaxed);
        // Those that still go on end by themselves; what they say is not needed.
        drop(incoming);
        collected
    });
    drivers.finish()?;
    collected?;
    resume.save()?;
    let mut writer = collector.finish(observer)?;
    writer.event(&phase_event(control.elapsed_s().unwrap_or(0.0), "the run is over"))?;
    let summary = writer.finish(counts.summary(workload.check.sample, &workload.check.tolerate))?;
    observer.finished(&summary);
    Ok(summary)
}

fn collect(
    collector: &mut Collector<'_>,
    incoming: &mpsc::Receiver<Message>,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    while !collector.is_over() {
        match incoming.recv() {
            Ok(message) => collector.take(message, observer)?,
            Err(_) => break,
        }
    }
    Ok(())
}

/// What all workers have in common.
struct Setting<'a> {
    workload: &'a Workload,
    operations: &'a [Operation],
    table: &'a Table,
    counts: &'a Counts,
    pool: &'a Pool,
    /// The next process of the history, if one is written.
    processes: Option<&'a AtomicU64>,
}

impl<'a> Setting<'a> {
    fn shared(&self, generator: &Generator, owner: (u32, u32)) -> Shared<'a> {
        Shared {
            operations: self.operations,
            naming: &self.workload.naming,
            indexes: &self.workload.indexes,
            table: self.table,
            counts: self.counts,
            check: &self.workload.check,
            retry: &self.workload.retry,
            pool: self.pool,
            is_consistent: self.workload.is_consistent,
            keeps_contexts: self.workload.keeps_contexts(),
            processes: self.processes,
            run: generator.run,
            owner: owner.0.into(),
            owners: owner.1.into(),
        }
    }

    /// What is a worker's: its share of the mix, or its job.
    fn part(&self, worker: u32, identity: &Identity, generator: &Generator, resume: &Resume) -> Part {
        let (threads, mix_len) = (self.workload.threads, self.workload.operations.len());
        let job = worker.checked_sub(threads).map(|job| mix_len + job as usize);
        let (place, places) = (identity.index * threads + worker, identity.of * threads);
        let is_own = |at: usize| job.map_or(at < mix_len, |job| at == job);
        let keys = self.operations.iter().enumerate().map(|(at, operation)| {
            let shape = operation.keys.clone().filter(|_| is_own(at))?;
            // A job has the whole of a sequence for itself.
            let mut keys =
                if job.is_some() { Keys::new(shape, 0, 1) } else { Keys::new(shape, place, places) };
            if let Some(next) = resume.next(&operation.label, worker) {
                keys.resume(next);
            }
            Some(keys)
        });
        let keys: Vec<Option<Keys>> = keys.collect();
        let weight = |(at, operation): (usize, &Operation)| match job {
            Some(job) => u64::from(at == job),
            None if at < mix_len => u64::from(operation.weight),
            None => 0,
        };
        let sequence = self.operations.iter().zip(&keys).find_map(|(operation, keys)| {
            let is_insert =
                matches!(operation.keys, Some(Shape::Sequential { .. })) && operation.op == Op::Put;
            keys.as_ref().filter(|_| is_insert).map(Keys::position)
        });
        let unique = unique_first(place + generator.of * threads * u32::from(job.is_some()));
        Part {
            worker,
            weights: self.operations.iter().enumerate().map(weight).collect(),
            slots: if job.is_some() { 1 } else { share(self.workload, worker) },
            inserted: Inserted {
                sequence: Progress::starting(sequence.unwrap_or(0)),
                unique: Progress::starting(unique),
                deleted: unique,
            },
            rng: Rng::part(generator.seed, worker.into()),
            keys,
        }
    }

    /// Operations that a worker may begin.
    fn budget(&self, worker: u32, identity: &Identity) -> u64 {
        let threads = u64::from(self.workload.threads);
        match self.workload.operations_max {
            Some(all) if u64::from(worker) < threads => {
                let (of, place) = (
                    threads * u64::from(identity.of),
                    u64::from(identity.index) * threads + u64::from(worker),
                );
                all / of + u64::from(place < all % of)
            }
            // Jobs end with the time, or with the others.
            _ => u64::MAX,
        }
    }
}

/// A worker's share of what may be outstanding.
fn share(workload: &Workload, worker: u32) -> usize {
    let (all, threads) = (workload.concurrency, workload.threads);
    (all / threads + u32::from(worker < all % threads)) as usize
}

/// Makes drivers.
struct Drivers<'a> {
    workload: &'a Workload,
    places: &'a Places,
    common: Common,
    null: crate::driver::null::Store,
    /// Of stores in this process.
    folder: &'a Path,
    /// The store that all of them share.
    shared: Option<SharedStore>,
    /// The login at servers that ask for one, and TLS with them.
    login: Option<(&'a Login, ServerTls)>,
}

impl<'a> Drivers<'a> {
    fn new(
        workload: &'a Workload,
        places: &'a Places,
        folder: &'a Path,
        login: Option<&'a Login>,
    ) -> Result<Drivers<'a>, Error> {
        let secured =
            |login: &'a Login| Ok((login, ServerTls::new(&login.tls, workload.targets(), &places.targets)?));
        let common = Common {
            bucket_type: workload.bucket_type.clone(),
            quorums: workload.quorums.clone(),
            returns_context: workload.keeps_contexts(),
        };
        let is_shared = workload.driver == DriverKind::Engine && workload.engine.is_shared;
        let shared =
            is_shared.then(|| EngineDriver::open_shared(folder, &workload.engine, workload.workers()));
        if workload.driver == DriverKind::Cassandra {
            crate::driver::make_schema(&places.targets, &workload.peer.cassandra)?;
        }
        Ok(Drivers {
            workload,
            places,
            common,
            null: Default::default(),
            folder,
            shared: shared.transpose()?,
            login: login.map(secured).transpose()?,
        })
    }

    /// Closes what they shared, when all have ended.
    fn finish(self) -> Result<(), Error> {
        let closed = self.shared.map_or(Ok(()), SharedStore::close);
        closed.map_err(|error| {
            Error::Unusable(format!("{} was not closed: {error}", self.workload.engine.kind.name()))
        })
    }

    /// The driver of a worker that has `slots` operations under way at most.
    fn make(&self, worker: u32, slots: usize) -> Result<Box<dyn Driver + Send>, Error> {
        let workload = self.workload;
        let connections = slots.div_ceil(workload.pipeline as usize);
        // Workers begin at different servers, so that few connections each still reach all.
        let mut addresses = self.places.targets.clone();
        let first = worker as usize % addresses.len();
        addresses.rotate_left(first);
        let pipeline = workload.pipeline as usize;
        match workload.driver {
            DriverKind::Null => Ok(self.planted(NullDriver::new(self.null.clone()))),
            DriverKind::Engine => {
                if let Some(shared) = &self.shared {
                    return Ok(self.planted(EngineDriver::sharing(shared, &workload.engine)));
                }
                let folder = EngineDriver::folder(self.folder, worker);
                Ok(self.planted(EngineDriver::open(&folder, &workload.engine)?))
            }
            DriverKind::Pb => {
                let mut codec = Pb::new(&self.common);
                if let Some((login, tls)) = &self.login {
                    codec = codec.secured(login, tls.clone());
                }
                let pool = Connections::connect(codec, &addresses, connections, pipeline, workload.timeout)?;
                self.connected(pool)
            }
            DriverKind::Http => {
                let mut codec = Http::new(&self.common, &addresses[0].to_string());
                if let Some((login, tls)) = &self.login {
                    codec = codec.secured(login, tls.clone());
                }
                let pool = Connections::connect(codec, &addresses, connections, pipeline, workload.timeout)?;
                self.connected(pool)
            }
            DriverKind::Redis => {
                let codec = crate::driver::Redis::new(workload.peer.database);
                let pool = Connections::connect(codec, &addresses, connections, pipeline, workload.timeout)?;
                self.connected(pool)
            }
            DriverKind::RedisCluster => self.connected(crate::driver::RedisCluster::connect(
                &addresses,
                slots,
                pipeline,
                workload.timeout,
            )?),
            DriverKind::Etcd => self.connected(crate::driver::Etcd::connect(
                &addresses,
                connections,
                pipeline,
                workload.timeout,
            )?),
            DriverKind::Cassandra => {
                let codec = crate::driver::Cassandra::new(&workload.peer.cassandra);
                let pool = Connections::connect(codec, &addresses, connections, pipeline, workload.timeout)?;
                self.connected(pool)
            }
        }
    }

    /// Waits until all connections are open: a server that is not there is told before anything is measured.
    fn connected<D: Driver + Send + 'static>(&self, mut driver: D) -> Result<Box<dyn Driver + Send>, Error> {
        struct Nobody;
        impl Sink for Nobody {
            fn answered(&mut self, _token: u32, _answer: crate::driver::Answer<'_>) {}
        }
        let begin = Instant::now();
        while !driver.is_connected() {
            driver.poll(Duration::from_millis(10), &mut Nobody)?;
            if begin.elapsed() > CONNECT_MAX {
                return Err(self.places.unreached(self.workload, driver.trouble()));
            }
        }
        Ok(self.planted(driver))
    }

    fn planted<D: Driver + Send + 'static>(&self, driver: D) -> Box<dyn Driver + Send> {
        match self.workload.plant {
            plant if plant == Plant::default() => Box::new(driver),
            plant => Box::new(Planted::new(driver, plant)),
        }
    }
}

fn manifest(
    workload: &Workload,
    identity: &Identity,
    generator: &Generator,
    servers: Vec<results::Server>,
) -> Manifest {
    Manifest {
        format: FORMAT,
        name: workload.name.clone(),
        started: utc(generator.started_unix_ms),
        started_unix_ms: generator.started_unix_ms,
        version: identity.version.clone(),
        command: identity.command.clone(),
        workload: workload.text.clone(),
        workload_file: workload.file.clone(),
        driver: workload.driver.name().to_owned(),
        load: workload.load.name().to_owned(),
        rate: workload.load.rate(),
        concurrency: u64::from(workload.concurrency) * u64::from(identity.of),
        labels: workload.labels(),
        warm_up_s: workload.warm_up.limit().as_secs(),
        duration_s: workload.duration.map(|duration| duration.as_secs()),
        generators: vec![generator.clone()],
        servers,
        machine: proc::machine(),
        limits: proc::limits(std::process::id()),
    }
}
