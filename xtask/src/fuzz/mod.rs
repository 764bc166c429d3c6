//! Random input for what strangers can reach, without further tools: `cargo xtask fuzz`.
//!
//! A run takes requests that make sense, damages them, cuts them into pieces and gives them to a connection's session,
//! answering whatever it asks. It fails if the session panics, does not end, answers nothing, gives out a request
//! without the rights that it needs, or if memory grows over many runs. The same seed makes the same runs.
//! Coverage-guided fuzzing of the same is `cargo fuzz run`.

mod rights;

use self::rights::{Policies, Rights, USER};
use crate::Result;
use base::Rng;
use base::rng::SplitMix64;
use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use kv::index::Rows;
use kv::{Error, Found, Request, Response};
use node::{http, riak};
use object::{Actor, Dot, Metadata, Policy, Put};
use security::Access;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much more memory there may be after many runs than after the first of them.
const GROWTH_MAX: u64 = 8 << 20;

/// Runs after which memory is looked at first, and then again and again: allocators keep what they once needed.
const WARM_UP: u64 = 100_000;

/// The most damages of one input.
const DAMAGES_MAX: u64 = 6;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Which of them; without it, all, at the same time.
    #[arg(value_enum)]
    targets: Vec<Target>,
    /// How long each is run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many inputs each is given; then time does not end it.
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Connections of HTTP.
    Http,
    /// Connections of Riak's protocol buffers.
    Pb,
}

/// All of them.
pub const TARGETS: [Target; 2] = [Target::Http, Target::Pb];

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so long.
    Elapsed(Duration),
    /// After so many runs.
    Runs(u64),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Runs, none of which failed.
    pub runs: u64,
    /// Bytes of memory that were taken since the first of them.
    pub growth: u64,
}

/// Runs what was asked for.
pub fn run(options: &Options) -> Result<()> {
    let targets = if options.targets.is_empty() { &TARGETS[..] } else { &options.targets };
    let until = options.runs.map_or(Until::Elapsed(Duration::from_secs(options.seconds)), Until::Runs);
    std::thread::scope(|scope| {
        let start = |&target| (target, scope.spawn(move || fuzz(target, until, options.seed)));
        let running: Vec<_> = targets.iter().map(start).collect();
        for (target, running) in running {
            let outcome = running.join().map_err(|_| "a thread has panicked")??;
            println!("{target:?}: {} runs, {} KiB of growth", outcome.runs, outcome.growth >> 10);
        }
        Ok(())
    })
}

/// Runs one target.
pub fn fuzz(target: Target, until: Until, seed: u64) -> Result<Outcome> {
    let mut rng = SplitMix64::new(seed);
    let (seeds, policies) = (seeds(target), Policies::new());
    let begin = Instant::now();
    let (mut runs, mut at_first) = (0u64, None);
    loop {
        let input = damaged(&seeds, &mut rng);
        let cuts = rng.next_u64();
        let run = || converse(target, (&input, &policies), &mut SplitMix64::new(cuts));
        let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panicked".into()));
        ended.map_err(|failure| format!("{target:?}, run {runs}: {failure}: {}", input.escape_ascii()))?;
        runs += 1;
        if runs == WARM_UP {
            at_first = Some(resident()?);
        }
        let enough = match until {
            Until::Elapsed(time) => runs.is_multiple_of(1024) && begin.elapsed() >= time,
            Until::Runs(count) => runs >= count,
        };
        if enough {
            break;
        }
    }
    let now = resident()?;
    let growth = at_first.map_or(0, |first| now.saturating_sub(first));
    if growth > GROWTH_MAX {
        return Err(format!("{target:?}: {growth} bytes more memory after {runs} runs").into());
    }
    Ok(Outcome { runs, growth })
}

/// Resident memory of this process.
fn resident() -> Result<u64> {
    Ok(bench::usage(std::process::id()).ok_or("/proc does not tell of this process")?.rss_bytes)
}

/// Two requests that make sense, and some damage.
fn damaged(seeds: &[Vec<u8>], rng: &mut SplitMix64) -> Vec<u8> {
    const ODD: &[u8] = b"\r\n :;,/%\"0\0\xff\x7f\x80+-*";
    let pick = |rng: &mut SplitMix64| seeds[rng.below(seeds.len() as u64) as usize].clone();
    let mut bytes = pick(rng);
    bytes.extend(pick(rng));
    for _ in 0..rng.below(DAMAGES_MAX + 1) {
        let at = rng.below(bytes.len() as u64) as usize;
        let odd = ODD[rng.below(ODD.len() as u64) as usize];
        match rng.below(6) {
            0 => bytes[at] = (rng.next_u64() >> 56) as u8,
            1 => bytes[at] = odd,
            2 => bytes.insert(at, odd),
            3 => bytes[at] ^= 1 << rng.below(8),
            4 => {
                let end = (at + rng.below(16) as usize + 1).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let end = (at + rng.below(16) as usize + 1).min(bytes.len() - 1);
                bytes.drain(at.min(end)..end);
            }
        }
    }
    bytes
}

/// Gives a new connection the input piece by piece.
fn converse(target: Target, (input, policies): (&[u8], &Policies), rng: &mut SplitMix64) -> Result<()> {
    let mut session = Session::new(target);
    let mut rights = Rights::new(policies, rng);
    session.begin(&mut rights, rng);
    let (mut pending, mut out) = (BytesMut::new(), Vec::new());
    let mut rest = input;
    while !rest.is_empty() {
        // Mostly all at once, as it usually comes.
        let len = if rng.below(4) == 0 { rng.below(rest.len() as u64) as usize + 1 } else { rest.len() };
        let (piece, after) = rest.split_at(len);
        rest = after;
        pending.extend_from_slice(piece);
        // Each step but the last takes a request, or answers one.
        for step in 0.. {
            if step > input.len() {
                return Err("it does not end".into());
            }
            out.clear();
            rights.renew(session.access_mut(), rng);
            match session.step(&mut pending, &mut out, (&mut rights, rng))? {
                Step::Wait => break,
                Step::Close => return Ok(()),
                Step::LoggedIn => {}
                Step::Goes if out.is_empty() => return Err("nothing was answered".into()),
                Step::Goes => {}
            }
        }
    }
    Ok(())
}

enum Step {
    Wait,
    /// A login was answered, with HTTP by nothing.
    LoggedIn,
    Goes,
    Close,
}

/// A connection of either kind.
enum Session {
    Http(Box<http::Session>),
    Pb(Box<riak::Session>),
}

impl Session {
    fn new(target: Target) -> Session {
        match target {
            Target::Http => Session::Http(Box::default()),
            Target::Pb => {
                let identity = riak::Identity { node: "n@h".into(), version: riak::RIAK_VERSION.into() };
                Session::Pb(Box::new(riak::Session::new(Arc::new(identity))))
            }
        }
    }

    /// Begins a guarded connection: one of HTTPS at times; one of protocol buffers can start TLS, or has logged in.
    fn begin(&mut self, rights: &mut Rights<'_>, rng: &mut SplitMix64) {
        if !rights.is_guarded() {
            return;
        }
        match self {
            Session::Http(session) if rng.below(4) > 0 => {
                rights.is_secure = true;
                session.secure(None);
            }
            Session::Http(_) => {}
            Session::Pb(session) => {
                session.offer_tls(true);
                if rng.below(2) == 0 {
                    (rights.is_secure, rights.has_proof) = (true, true);
                    session.on_secure();
                    session.on_login(Some(USER), &mut Vec::new());
                }
            }
        }
    }

    fn access_mut(&mut self) -> &mut Access {
        match self {
            Session::Http(session) => session.access_mut(),
            Session::Pb(session) => session.access_mut(),
        }
    }

    fn step(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
        (rights, rng): (&mut Rights<'_>, &mut SplitMix64),
    ) -> Result<Step> {
        const NOW: u64 = 1_795_263_371;
        match self {
            Session::Http(session) => match session.receive(NOW, input, out) {
                http::Incoming::Wait(_) => return Ok(Step::Wait),
                http::Incoming::Close => return Ok(Step::Close),
                http::Incoming::Answered => rights.has_proof = false,
                http::Incoming::Login(_) => {
                    rights.has_proof = rng.below(4) > 0;
                    session.on_login(rights.has_proof.then_some(USER), NOW, out);
                    return Ok(Step::LoggedIn);
                }
                http::Incoming::Question(question) => {
                    if !matches!(question, http::Question::Ready | http::Question::Live) {
                        rights.check()?;
                    }
                    rights.has_proof = false;
                    session.answer(200, "a/b", b"", out);
                }
                http::Incoming::Request(request) => {
                    rights.check()?;
                    rights.has_proof = false;
                    let mut next = Some(request);
                    while let Some(request) = next {
                        next = session.respond(answer(&request, rng), out);
                    }
                }
            },
            Session::Pb(session) => match session.receive(input, out) {
                riak::Incoming::Wait => return Ok(Step::Wait),
                riak::Incoming::Close => return Ok(Step::Close),
                riak::Incoming::Answered => {}
                riak::Incoming::StartTls => {
                    rights.is_secure = true;
                    session.on_secure();
                }
                riak::Incoming::Login(_) => {
                    let has_proof = rng.below(4) > 0;
                    rights.has_proof |= has_proof;
                    session.on_login(has_proof.then_some(USER), out);
                }
                riak::Incoming::Request(request) => {
                    rights.check()?;
                    session.respond(answer(&request, rng), out);
                }
            },
        }
        Ok(Step::Goes)
    }
}

/// What a node may answer.
fn answer(request: &Request, rng: &mut SplitMix64) -> std::result::Result<Response, Error> {
    let errors = [Error::Timeout, Error::Overload, Error::Modified, Error::NValViolation(3)];
    match request {
        Request::Get(_) if rng.below(3) > 0 => Ok(Response::Found(found(rng))),
        Request::Get(_) => Ok(Response::NotFound { deleted_context: None }),
        Request::Put(put) if rng.below(3) > 0 => {
            let key = put.key.is_none().then(|| Bytes::from_static(b"invented"));
            Ok(Response::Put { object: (rng.below(2) == 0).then(|| found(rng)), key })
        }
        Request::Delete(_) => Ok(Response::Deleted),
        Request::Index(_) if rng.below(3) > 0 => Ok(Response::Rows(rows(rng))),
        _ => Err(errors[rng.below(errors.len() as u64) as usize].clone()),
    }
}

/// A few bytes that may be anything.
fn any(rng: &mut SplitMix64) -> Bytes {
    let len = rng.below(12) as usize;
    (0..len).map(|_| (rng.next_u64() >> 56) as u8).collect()
}

/// All that an index query finds, or the first page.
fn rows(rng: &mut SplitMix64) -> Rows {
    let rows = (0..rng.below(3)).map(|_| ((rng.below(2) == 0).then(|| any(rng)), any(rng))).collect();
    Rows { rows, continuation: (rng.below(2) == 0).then(|| any(rng)), done: true }
}

/// An object with metadata that may be anything.
fn found(rng: &mut SplitMix64) -> Found {
    let mut any = || any(rng);
    let metadata = Metadata {
        content_type: Some(any()),
        charset: Some(any()),
        user_meta: vec![(any(), Some(any())), (any(), None)],
        links: vec![object::Link { bucket: any(), key: any(), tag: any() }],
        indexes: vec![object::IndexEntry { field: any(), value: any() }],
        ..Metadata::default()
    };
    let put = Put { context: None, metadata, value: Bytes::from_static(b"value") };
    let object = object::update(None, put, Dot::new(Actor(7), 1), Policy::AllowMult)
        .expect("a first write of a key can be planned");
    let (head, value) = object.into_parts();
    let mut encoded = Vec::new();
    head.encode(&mut encoded);
    Found { head: Bytes::from(encoded), value: Some(value), newest_only: false }
}

/// Requests that make sense, each with a line of `=` behind it. Line ends become those of HTTP.
const HTTP: &str = include_str!("../../seeds/http.txt");

/// Frames that make sense, in hexadecimal digits, after a line on each.
const PB: &str = include_str!("../../seeds/pb.hex");

/// The bytes of a line of hexadecimal digits.
fn unhex(line: &str) -> Vec<u8> {
    let digits = (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16));
    digits.collect::<std::result::Result<_, _>>().expect("the file of seeds has two digits a byte")
}

/// The requests of both files.
fn seeds(target: Target) -> Vec<Vec<u8>> {
    match target {
        Target::Http => {
            HTTP.split_terminator("\n====\n").map(|text| text.replace('\n', "\r\n").into_bytes()).collect()
        }
        Target::Pb => PB.lines().filter(|line| !line.starts_with('#')).map(unhex).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a new connection makes of each seed, if it is a request.
    fn requests(target: Target) -> Vec<Request> {
        let request = |bytes: Vec<u8>| {
            let (mut input, mut out) = (BytesMut::from(&bytes[..]), Vec::new());
            match Session::new(target) {
                Session::Http(mut session) => match session.receive(0, &mut input, &mut out) {
                    http::Incoming::Request(request) => Some(request),
                    _ => None,
                },
                Session::Pb(mut session) => match session.receive(&mut input, &mut out) {
                    riak::Incoming::Request(request) => Some(request),
                    _ => None,
                },
            }
        };
        seeds(target).into_iter().filter_map(request).collect()
    }

    #[test]
    fn queries_that_are_damaged_make_sense_before() {
        let count = |target, is: fn(&Request) -> bool| requests(target).iter().filter(|it| is(it)).count();
        let is_index = |request: &Request| matches!(request, Request::Index(_));
        assert_eq!(count(Target::Http, is_index), 2);
        assert_eq!(count(Target::Pb, is_index), 1);
        assert_eq!(count(Target::Http, |request| matches!(request, Request::Query(_))), 1);
        let is_fold = |request: &Request| matches!(request, Request::Fold(_));
        assert_eq!((count(Target::Http, is_fold), count(Target::Pb, is_fold)), (1, 2));
    }

    #[test]
    fn a_seed_makes_the_same_runs_and_none_fails() {
        for target in TARGETS {
            assert_eq!(fuzz(target, Until::Runs(2_000), 3).unwrap().runs, 2_000);
            let inputs = |seed| {
                let mut rng = SplitMix64::new(seed);
                (0..50).map(|_| damaged(&seeds(target), &mut rng)).collect::<Vec<_>>()
            };
            assert_eq!(inputs(5), inputs(5));
            assert_ne!(inputs(5), inputs(6));
        }
    }
}
