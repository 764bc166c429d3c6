//! The file in which a node has the ring: that of the metadata log, replaced by one with a snapshot in front, as it is
//! when it has grown.

use super::{Shape, unusable};
use base::Monotonic;
use base::rng::SplitMix64;
use bench::Error;
use bytes::Bytes;
use membership::log::{Identity, Input, Log, Output, Write};
use membership::state::State;
use membership::{ClusterId, NodeId};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long that takes, the second time.
pub(super) fn replace(shape: Shape, folder: &Path) -> Result<Duration, Error> {
    let bytes = bytes_of(shape)?;
    let (path, new) = (folder.join("log"), folder.join("log.new"));
    let write = || -> io::Result<Duration> {
        let begin = Instant::now();
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(begin.elapsed())
    };
    let took = write().and_then(|_| write()).map_err(Error::file(&path))?;
    fs::remove_file(&path).map_err(Error::file(&path))?;
    Ok(took)
}

/// The bytes of that file where the cluster has just been founded.
fn bytes_of(shape: Shape) -> Result<Bytes, Error> {
    let names: Vec<String> = (0..shape.nodes).map(|node| format!("node{node}@10.0.0.1")).collect();
    let nodes = names.iter().map(|name| (&**name, "10.0.0.1:8099", ""));
    let cluster = ClusterId(1);
    let state = State::found_by(cluster, (shape.partitions, shape.partitions.finest()), nodes);
    let state = state.map_err(unusable)?;
    let identity =
        Identity { cluster, node: NodeId(0), starts: 1, start: 1, address: "10.0.0.1:8099".to_owned() };
    let mut log = Log::found(identity, state, Box::new(SplitMix64::new(1)), Monotonic(0));
    let mut outputs = Vec::new();
    log.step(Input::Reachable { node: NodeId(0), is_up: true }, Monotonic(0), &mut outputs);
    let written = outputs.into_iter().find_map(|output| match output {
        Output::Write(Write::Replace(bytes)) => Some(bytes),
        _ => None,
    });
    written.ok_or_else(|| unusable("a log that is founded writes its file"))
}
