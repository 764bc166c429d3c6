//! The load generator: a closed loop without think time, cheap because it shares the machine with the server.
//!
//! One thread, one epoll set, N connections with one request outstanding on each. An operation costs one
//! `send`, one `recv` and its share of an `epoll_wait`; nothing is allocated. The next request goes out when an
//! answer has been checked. At the end of a run all outstanding answers are awaited and counted.

use crate::stats::Latencies;
use crate::sys::{Poll, thread_cpu, wait_writable};
use crate::workload::{Keys, Workload};
use crate::{Result, proc};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Room for an answer with a value of the usual length, its metadata, and as much again.
const INPUT_LEN: usize = 4096;

/// No answer is longer.
const ANSWER_MAX: usize = 1 << 20;

/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// How often a patient session sends refused requests again, and how long it waits before each.
const PATIENCE: u32 = 10_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Of how many answers one has its content verified, where nothing else is asked for.
const VERIFY_EVERY: u64 = 100;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so long.
    Elapsed(Duration),
    /// After so many operations.
    Ops(u64),
}

/// What a run did.
pub struct Outcome {
    /// Operations that were answered rightly: all, or the run had failed.
    pub ops: u64,
    /// From the first request to the last answer.
    pub wall: Duration,
    /// What the generator itself used.
    pub cpu: Duration,
    /// What all cores together did in that time, for whomever.
    pub busy: Duration,
    /// From each request to its answer.
    pub latencies: Latencies,
}

/// Connections to one server, or to several alike.
pub struct Session {
    poll: Poll,
    connections: Vec<Connection>,
    verify_every: u64,
    /// How often a refused request may yet be sent again.
    patience: u32,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    key: u64,
    sent: Instant,
}

impl Session {
    /// Opens so many connections, to each address as many or one more.
    pub fn connect(addresses: &[SocketAddr], connections: usize) -> Result<Session> {
        let poll = Poll::new()?;
        let addresses = addresses.iter().cycle().take(connections).enumerate();
        let connections = addresses
            .map(|(token, address)| {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                poll.add(&stream, token)?;
                let input = vec![0; INPUT_LEN];
                Ok(Connection { stream, input, filled: 0, key: 0, sent: Instant::now() })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Session { poll, connections, verify_every: VERIFY_EVERY, patience: 0 })
    }

    /// The same, with every answer's content verified.
    pub fn verifying_all(self) -> Session {
        Session { verify_every: 1, ..self }
    }

    /// The same, but what the server refuses is sent again a little later: for loads that are not measured, which may
    /// be faster than the disk.
    pub fn patient(self) -> Session {
        Session { patience: PATIENCE, ..self }
    }

    /// Keeps one request outstanding on each connection until the end of the run. Fails on the first answer that
    /// is wrong or does not come.
    pub fn run(&mut self, workload: &mut impl Workload, keys: &mut Keys, until: Until) -> Result<Outcome> {
        let (cpu, busy, begin) = (thread_cpu()?, proc::busy()?, Instant::now());
        let mut latencies = Latencies::new();
        let mut started = 0;
        let goes_on = |started: u64, now: Instant| match until {
            Until::Elapsed(limit) => now - begin < limit,
            Until::Ops(limit) => started < limit,
        };
        for connection in &mut self.connections {
            if goes_on(started, begin) {
                connection.send(workload, keys.next())?;
                started += 1;
            }
        }
        let mut answered = 0;
        while answered < started {
            let ready = self.poll.wait(SILENCE_MAX)?;
            if ready == 0 {
                return Err(format!("no answer for {SILENCE_MAX:?}, {} owed", started - answered).into());
            }
            for index in 0..ready {
                let connection = &mut self.connections[self.poll.token(index)];
                let Some(len) = connection.receive(workload)? else { continue };
                if self.patience > 0 && workload.refuses(&connection.input[..len]) {
                    self.patience -= 1;
                    sleep(BETWEEN_TRIES);
                    connection.filled = 0;
                    connection.send(workload, connection.key)?;
                    continue;
                }
                connection.finish(workload, len, answered % self.verify_every == 0)?;
                answered += 1;
                let now = Instant::now();
                latencies.record(now - connection.sent);
                if goes_on(started, now) {
                    connection.send(workload, keys.next())?;
                    started += 1;
                }
            }
        }
        let wall = begin.elapsed();
        Ok(Outcome { ops: answered, wall, cpu: thread_cpu()? - cpu, busy: proc::busy()? - busy, latencies })
    }
}

impl Connection {
    fn send(&mut self, workload: &mut impl Workload, key: u64) -> Result<()> {
        let request = workload.request(key);
        self.key = key;
        self.sent = Instant::now();
        // The socket's buffer is empty, as the last request has been answered, so it takes all but large ones whole.
        let mut rest = request;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !wait_writable(&self.stream, SILENCE_MAX)? {
                        return Err(format!("{} bytes not taken for {SILENCE_MAX:?}", rest.len()).into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads once; the answer's length if it is complete.
    fn receive(&mut self, workload: &impl Workload) -> Result<Option<usize>> {
        let came = match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(came) => came,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error.into()),
        };
        self.filled += came;
        let len = workload.answer_len(&self.input[..self.filled]);
        if let Some(len) = len.filter(|&len| len > self.input.len()) {
            if len > ANSWER_MAX {
                return Err(format!("an answer of {len} bytes").into());
            }
            self.input.resize(len, 0);
        }
        Ok(len.filter(|&len| len <= self.filled))
    }

    /// Checks the complete answer and makes room for the next.
    fn finish(&mut self, workload: &impl Workload, len: usize, verify: bool) -> Result<()> {
        if len < self.filled {
            return Err("more than one answer to one request".into());
        }
        let answer = &self.input[..len];
        workload.check(answer)?;
        if verify {
            workload.verify(self.key, answer)?;
        }
        self.filled = 0;
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::workload::{KEY_LEN, Op, Redis, Shape};
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread;

    /// A server that answers GETs of keys below `known` in pieces, as Redis would.
    pub fn serve(connections: usize, known: u64) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    while let Some(Ok(line)) = lines.next() {
                        if line.len() != KEY_LEN {
                            continue;
                        }
                        let key = line.parse().unwrap();
                        let value = Shape::PLAIN.value_of(if key < known { key } else { 0 });
                        let answer = [b"$1024\r\n", &value[..], b"\r\n"].concat();
                        let (first, second) = answer.split_at(3);
                        stream.write_all(first).unwrap();
                        thread::yield_now();
                        stream.write_all(second).unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn every_operation_is_answered_and_counted() {
        let mut session = Session::connect(&[serve(3, u64::MAX)], 3).unwrap().verifying_all();
        let mut keys = Keys::Sequence { next: 1 };
        let outcome = session.run(&mut Redis::new(Op::Get), &mut keys, Until::Ops(100)).unwrap();
        assert_eq!(outcome.ops, 100);
        assert_eq!(keys.next(), 101);
        assert!(outcome.cpu > Duration::ZERO && outcome.latencies.p50_us() > 0.0);
        assert_eq!(session.run(&mut Redis::new(Op::Get), &mut keys, Until::Ops(2)).unwrap().ops, 2);
    }

    #[test]
    fn connections_are_spread_evenly() {
        // Each of these servers takes just one connection.
        let addresses = [serve(1, u64::MAX), serve(1, u64::MAX)];
        let mut session = Session::connect(&addresses, 2).unwrap();
        let mut keys = Keys::Sequence { next: 1 };
        assert_eq!(session.run(&mut Redis::new(Op::Get), &mut keys, Until::Ops(10)).unwrap().ops, 10);
    }

    #[test]
    fn a_wrong_value_ends_the_run() {
        let mut session = Session::connect(&[serve(1, 50)], 1).unwrap().verifying_all();
        let mut keys = Keys::Sequence { next: 1 };
        let failure = session.run(&mut Redis::new(Op::Get), &mut keys, Until::Ops(100)).err().unwrap();
        assert!(failure.to_string().contains("key 50"), "{failure}");
    }
}
