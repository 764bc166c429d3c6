//! Redis Cluster: each key goes to the server that has its slot.
//!
//! 1. Any server is asked for the map of slots before the first operation; each master of it gets a group of
//!    connections.
//! 2. An operation goes to its slot's master. `MOVED` sends it elsewhere, and the map is asked for anew; `ASK` sends
//!    this one elsewhere, once. Both cost the operation its time: it is submitted once more ([`Answer::Again`]).
//! 3. An operation whose server is not there, or that no server has, waits [`RECONNECT_AFTER`] and has failed then:
//!    without the wait a closed loop would do nothing but fail.
//!
//! The map is asked for anew, every [`MAP_EVERY`] at most, after whatever says that it may be an older one. Servers
//! that have left keep their group, which is not used.

use super::resp::{self, Value, put_request};
use super::slots::{NODES_MAX, Redirection, SLOTS, Share, redirection, shares, slot};
use super::{COLON, Redis};
use crate::Error;
use crate::driver::pool::{Asked, Pool, RECONNECT_AFTER};
use crate::driver::{Answer, Command, Driver, ErrorKind, Request, Sink};
use base::FastMap;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How often the map is asked for at most.
const MAP_EVERY: Duration = Duration::from_millis(100);

/// No map is longer: a thousand masters with some replicas each, in slots that alternate between them.
const MAP_MAX: usize = 8 << 20;

/// How often one operation is sent elsewhere, before it has failed.
const REDIRECTIONS_MAX: u8 = 16;

/// What the answer with the map is known by. Operations are known by numbers of slots, which are far smaller.
const MAP_TOKEN: u32 = u32::MAX;

/// Nobody has the slot.
const NOBODY: u16 = u16::MAX;

/// Where an operation is sent next, and how often it was.
#[derive(Clone, Copy)]
struct Detour {
    to: Redirection,
    times: u8,
}

/// Connections to all masters.
pub struct RedisCluster {
    pool: Pool<Redis>,
    /// Who must be asked to get at any of it.
    seed: IpAddr,
    /// Connections to each master: together they take as many operations as are under way at most.
    connections: usize,
    operations: usize,
    under_way: usize,
    /// Masters by the number of their group.
    nodes: Vec<SocketAddr>,
    /// The group of each slot.
    groups: Vec<u16>,
    /// Whose turn it is, of what needs no slot.
    turn: usize,
    detours: FastMap<u32, Detour>,
    /// Operations that wait to have failed.
    parked: VecDeque<(Instant, u32, ErrorKind, &'static str)>,
    map: MapState,
    map_asked: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MapState {
    Known,
    Doubted,
    AskedFor,
}

impl RedisCluster {
    /// Connects to the masters of the cluster that the seeds belong to: to each with as many connections of `pipeline`
    /// operations as are needed for `operations`.
    pub fn connect(
        seeds: &[SocketAddr],
        operations: usize,
        pipeline: usize,
        timeout: Duration,
    ) -> Result<RedisCluster, Error> {
        let mut why = String::new();
        for seed in seeds {
            let shares = match first_map(*seed, timeout) {
                Ok(shares) => shares,
                Err(error) => {
                    why = format!("{seed}: {error}");
                    continue;
                }
            };
            let mut cluster = RedisCluster {
                pool: Pool::new(Redis::new(0), pipeline, timeout)?,
                seed: seed.ip(),
                connections: operations.div_ceil(pipeline),
                operations,
                under_way: 0,
                nodes: Vec::new(),
                groups: vec![NOBODY; SLOTS],
                turn: 0,
                detours: FastMap::default(),
                parked: VecDeque::new(),
                map: MapState::Known,
                map_asked: Instant::now(),
            };
            cluster.set_map(&shares)?;
            if cluster.nodes.is_empty() {
                return Err(Error::Unusable(format!("{seed}: no server of the cluster has slots")));
            }
            return Ok(cluster);
        }
        Err(Error::Unusable(format!("no server reports the owners of the slots; {why}")))
    }

    fn set_map(&mut self, shares: &[Share]) -> Result<(), Error> {
        self.groups.fill(NOBODY);
        for share in shares {
            if let Some(group) = self.group(share.master)? {
                self.groups[share.first.into()..=share.last.max(share.first).into()].fill(group);
            }
        }
        Ok(())
    }

    /// The group of a server, which is connected to if it is new; `None` if there are too many.
    fn group(&mut self, address: SocketAddr) -> Result<Option<u16>, Error> {
        let known = self.nodes.iter().position(|node| *node == address);
        if known.is_none() && self.nodes.len() < NODES_MAX {
            self.nodes.push(address);
            self.pool.add_group(&[address], self.connections)?;
        }
        let group = known
            .or_else(|| self.nodes.last().filter(|last| **last == address).map(|_| self.nodes.len() - 1));
        Ok(group.map(|group| group as u16))
    }

    /// Asks for the map, if it is in doubt and somebody can be asked.
    fn ask_for_map(&mut self, now: Instant) {
        if self.map != MapState::Doubted || now - self.map_asked < MAP_EVERY {
            return;
        }
        self.map_asked = now;
        let mut request = Vec::new();
        put_map_request(&mut request);
        // Whoever is asked in vain is not the first to be asked the next time.
        self.turn += 1;
        for at in 0..self.nodes.len() {
            let group = (self.turn + at) % self.nodes.len();
            if self.pool.send(group, MAP_TOKEN, Asked::Frame, &request) {
                self.map = MapState::AskedFor;
                return;
            }
        }
    }

    fn park(&mut self, token: u32, kind: ErrorKind, text: &'static str) {
        self.doubt();
        self.parked.push_back((Instant::now() + RECONNECT_AFTER, token, kind, text));
    }

    fn doubt(&mut self) {
        if self.map == MapState::Known {
            self.map = MapState::Doubted;
        }
    }

    /// Where an operation goes, and what before it.
    fn way(&mut self, request: &Request<'_>) -> Result<(Option<u16>, Vec<u8>), Error> {
        let mut before = Vec::new();
        if let Some(detour) = self.detours.get(&request.token).copied() {
            let group = match detour.to {
                Redirection::Moved(address) => self.group(address)?,
                Redirection::Ask(address) => {
                    put_request(&mut before, &[&[b"ASKING"]]);
                    self.group(address)?
                }
            };
            return Ok((group, before));
        }
        let has_key = !matches!(request.command, Command::Ping | Command::Reconnect);
        if has_key {
            let group = self.groups[usize::from(slot(&[request.bucket, COLON, request.key]))];
            return Ok((Some(group).filter(|group| *group != NOBODY), before));
        }
        self.turn += 1;
        Ok((Some((self.turn % self.nodes.len()) as u16), before))
    }
}

impl Driver for RedisCluster {
    fn ready(&self) -> usize {
        self.operations - self.under_way
    }

    fn is_connected(&self) -> bool {
        self.pool.is_connected()
    }

    fn trouble(&self) -> Option<&str> {
        self.pool.trouble()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        self.under_way += 1;
        let (group, before) = self.way(request)?;
        match group.map(usize::from) {
            None => self.park(request.token, ErrorKind::Unavailable, "no server has the slot"),
            Some(group) if self.pool.room(group) == 0 => {
                self.park(request.token, ErrorKind::Refused, "the slot's server is not there");
            }
            Some(group) => self.pool.submit_to(group, &before, request)?,
        }
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let now = Instant::now();
        self.ask_for_map(now);
        let until_parked = self.parked.front().map(|(until, ..)| until.saturating_duration_since(now));
        let timeout = timeout.min(until_parked.unwrap_or(timeout));
        let mut router = Router {
            seed: self.seed,
            under_way: &mut self.under_way,
            detours: &mut self.detours,
            is_doubted: false,
            is_map_answered: false,
            shares: None,
            sink,
        };
        self.pool.poll(timeout, &mut router)?;
        let now = Instant::now();
        while self.parked.front().is_some_and(|(until, ..)| *until <= now) {
            if let Some((_, token, kind, text)) = self.parked.pop_front() {
                router.answered(token, Answer::Failed { kind, text });
            }
        }
        let Router { is_doubted, is_map_answered, shares, .. } = router;
        if is_map_answered {
            self.map = if shares.is_some() { MapState::Known } else { MapState::Doubted };
        }
        if is_doubted {
            self.doubt();
        }
        shares.map_or(Ok(()), |shares| self.set_map(&shares))
    }
}

/// Hears the answers before the worker does.
struct Router<'a> {
    seed: IpAddr,
    under_way: &'a mut usize,
    detours: &'a mut FastMap<u32, Detour>,
    is_doubted: bool,
    is_map_answered: bool,
    shares: Option<Vec<Share>>,
    sink: &'a mut dyn Sink,
}

impl Router<'_> {
    /// Where an operation is to go, if that is elsewhere.
    fn detour(&mut self, token: u32, answer: &Answer<'_>) -> Option<Detour> {
        let Answer::Failed { kind, text } = answer else { return None };
        let to = redirection(text, self.seed).filter(|_| *kind == ErrorKind::Other);
        let is_gone = matches!(kind, ErrorKind::Refused | ErrorKind::Disconnected | ErrorKind::Unavailable);
        self.is_doubted |= is_gone || matches!(to, Some(Redirection::Moved(_)));
        let times = self.detours.get(&token).map_or(0, |detour| detour.times);
        to.filter(|_| times < REDIRECTIONS_MAX).map(|to| Detour { to, times: times + 1 })
    }
}

impl Sink for Router<'_> {
    fn answered(&mut self, token: u32, answer: Answer<'_>) {
        if token == MAP_TOKEN {
            self.is_map_answered = true;
            if let Answer::Found { body, .. } = answer {
                // A map that cannot be read is asked for again, from another server.
                self.shares = resp::parse(body).ok().and_then(|map| shares(&map, self.seed).ok());
            }
            return;
        }
        *self.under_way -= 1;
        if let Some(detour) = self.detour(token, &answer) {
            self.detours.insert(token, detour);
            return self.sink.answered(token, Answer::Again);
        }
        // Few operations have gone elsewhere: most look no further than here.
        if !self.detours.is_empty() {
            self.detours.remove(&token);
        }
        self.sink.answered(token, answer);
    }
}

fn put_map_request(out: &mut Vec<u8>) {
    put_request(out, &[&[b"CLUSTER"], &[b"SLOTS"]]);
}

/// The map, from a server that is asked for nothing else.
fn first_map(seed: SocketAddr, timeout: Duration) -> Result<Vec<Share>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&seed, timeout).map_err(text)?;
    stream.set_read_timeout(Some(timeout)).map_err(text)?;
    let (mut request, mut answer, mut piece) = (Vec::new(), Vec::new(), [0; 16 << 10]);
    put_map_request(&mut request);
    stream.write_all(&request).map_err(text)?;
    loop {
        let count = stream.read(&mut piece).map_err(text)?;
        answer.extend_from_slice(&piece[..count]);
        match resp::frame_len(&answer)? {
            Some(len) if len <= answer.len() => break,
            _ if count == 0 => return Err("the server closed the connection".to_owned()),
            _ if answer.len() > MAP_MAX => return Err("an endless map of slots".to_owned()),
            _ => {}
        }
    }
    match resp::parse(&answer)? {
        Value::Error(text) => Err(String::from_utf8_lossy(text).into_owned()),
        map => shares(&map, seed.ip()),
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
