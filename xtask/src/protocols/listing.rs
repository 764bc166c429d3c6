//! What it costs to list the keys of a bucket on three nodes, and how soon the first of them comes.

use super::Context;
use crate::Result;
use crate::cluster::{Cluster, Setup};
use crate::proc;
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::{BUCKET, Op, Riak, Shape};
use protocol::messages::{ListKeysReq, ListKeysResp};
use protocol::{Limits, Message, codes, frame, next_frame};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The keys that the bars are of.
pub const KEYS: u64 = 1_000_000;

/// The server CPU of all nodes for a listing of so many.
const CPU_S_MAX: f64 = 1.5;

/// The first key comes within so many milliseconds.
const FIRST_MS_MAX: f64 = 50.0;

/// Memory is flat where a listing takes no more than this of all nodes together: pages on their way.
const GROWTH_MIB_MAX: f64 = 64.0;

/// The values under the keys: a listing does not look at them.
const SHAPE: Shape = Shape { len: 100, version: 1 };

/// A listing that brings nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        Spec::new("listing/1M keys, 3 nodes, server CPU", "s", Some(Bar::AtMost(CPU_S_MAX))),
        Spec::new("listing/1M keys, 3 nodes, first key", "ms", Some(Bar::AtMost(FIRST_MS_MAX))),
        Spec::new("listing/1M keys, 3 nodes, growth of memory", "MiB", Some(Bar::AtMost(GROWTH_MIB_MAX))),
    ]
}

/// A listing.
struct Listed {
    keys: u64,
    first: Duration,
    /// The most memory beyond what the nodes had before, seen at any piece.
    growth: u64,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let keys = context.plan.listed;
    let home = make_dir(&context.home, "listing")?;
    let setup = Setup {
        binary: context.binary.clone(),
        home,
        durability: "none",
        read_form: None,
        ring_size: None,
        anti_entropy: None,
        backend: None,
    };
    let cluster = Cluster::start(&setup)?;
    let servers = &cluster.servers;
    servers.load(&mut Riak::shaped(Op::Put, SHAPE), 0, keys)?;
    servers.rest()?;
    let (mut cpu, mut first, mut growth) = (Vec::new(), Vec::new(), Vec::new());
    // The first one brings caches and buffers to where they stay.
    list(servers.addresses[0], &servers.pids)?;
    for round in 0..context.plan.rounds {
        let before = servers.cpu()?;
        let listed = list(servers.addresses[round % servers.addresses.len()], &servers.pids)?;
        let used = servers.cpu()? - before;
        if listed.keys != keys {
            return Err(format!("{} of {keys} keys are listed", listed.keys).into());
        }
        // In a quick run fewer keys are listed, and what they cost is told as of all.
        cpu.push(used.as_secs_f64() * KEYS as f64 / keys as f64);
        first.push(listed.first.as_secs_f64() * 1e3);
        growth.push(listed.growth as f64 / f64::from(1 << 20));
    }
    cluster.stop()?;
    let note = format!("{keys} keys listed");
    for (spec, values) in specs().into_iter().zip([cpu, first, growth]) {
        report.push(spec.measured(&values).noted(&note))?;
    }
    Ok(())
}

/// Lists the keys of the figures' bucket, over protocol buffers.
fn list(address: SocketAddr, pids: &[u32]) -> Result<Listed> {
    let memory = || -> Result<u64> { pids.iter().map(|&pid| Ok(proc::memory(pid)?.anonymous)).sum() };
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut request = Vec::new();
    let bucket = BUCKET.into();
    frame::put_message(&mut request, codes::LIST_KEYS_REQ, &ListKeysReq { bucket, ..ListKeysReq::default() });
    let mut listed = Listed { keys: 0, first: Duration::ZERO, growth: 0 };
    let (mut input, mut pieces) = (bytes::BytesMut::new(), 0u64);
    let before = memory()?;
    let begin = Instant::now();
    stream.write_all(&request)?;
    loop {
        let Some(frame) = next_frame(&mut input, Limits::ESTABLISHED)? else {
            let mut some = [0; 64 << 10];
            let read = stream.read(&mut some)?;
            if read == 0 {
                return Err("the node hung up in the middle of a listing".into());
            }
            input.extend_from_slice(&some[..read]);
            continue;
        };
        if frame.code != codes::LIST_KEYS_RESP {
            return Err(
                format!("a listing was answered {}: {}", frame.code, frame.body.escape_ascii()).into()
            );
        }
        let piece = ListKeysResp::decode(frame.body)?;
        if listed.keys == 0 && !piece.keys.is_empty() {
            listed.first = begin.elapsed();
        }
        listed.keys += piece.keys.len() as u64;
        pieces += 1;
        if pieces.is_multiple_of(MEMORY_EVERY) {
            listed.growth = listed.growth.max(memory()?.saturating_sub(before));
        }
        if piece.done == Some(true) {
            return Ok(listed);
        }
    }
}

/// Memory is looked at after so many pieces: each look reads a file of the kernel for each node.
const MEMORY_EVERY: u64 = 32;
