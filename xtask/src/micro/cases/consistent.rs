//! Requests on a consistent bucket type, of three nodes that hold three copies of each key.
//!
//! The client asks the first node, which leads a third of the groups. A count is of all three nodes: the request passed
//! on, the entry at each voter, the answers, and the notes of commits that leave later.
//!
//! Left out: the metadata log. The nodes are told the agreement that it would have.

use super::cluster::{Cluster, EMPTY_FRAME, number};
use super::protocol::{typed_get_frame, typed_put_frame};
use super::shard::layout_of_all;
use super::{OPERATIONS, Operation, VALUE_BYTES, WARM, asked, key};
use crate::Result;
use bytes::Bytes;
use kv::{Prop, Request, TypeChange};
use membership::state::{Founding, StoreBirths};
use node::consistent::agreement::{Agreement, RegisteredProcess};
use ring::{Birth, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TYPE: Bytes = Bytes::from_static(b"strong");

/// Voters of a group: all nodes.
const NODES: usize = 3;

/// The founding, as any number would do.
const FOUNDING: u64 = 1;

/// Keys before a case begins: enough that nearly each of the 1,024 groups has a leader.
const KEYS: u64 = 8_000;

/// The time between two requests: 10,000 a second.
const PAUSE: Duration = Duration::from_micros(100);

/// Time in which nodes hear of each other, elect leaders, hand groups to their preferred ones, and come to rest.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 400;

/// The number of a node's process and the birth of its store, as `Cluster` draws lives.
fn life_and_birth(node: usize) -> Result<(u64, Birth)> {
    let life = node as u64 + 1;
    Ok((life, Birth::of(life).ok_or("it is not zero")?))
}

/// The agreement of three nodes that own the partitions in turn.
fn agreement() -> Result<Agreement> {
    let size = layout_of_all()?.ring_size;
    let ring_bits = u8::try_from(size.bits())?;
    let (mut stores, mut processes) = (BTreeMap::new(), BTreeMap::new());
    for node in 0..NODES {
        let (life, birth) = life_and_birth(node)?;
        let births = StoreBirths { ring_bits, births: Arc::from([birth]) };
        stores.insert(number(node), births.clone());
        processes.insert(number(node), RegisteredProcess { life, stores: births });
    }
    let owners: Arc<[NodeId]> = (0..NODES).map(number).cycle().take(size.all().len()).collect();
    let founding = Founding { number: FOUNDING, epoch: 0, owners, stores: Arc::new(stores) };
    let n_val = u8::try_from(NODES)?;
    Ok(Agreement { foundings: Arc::new([(n_val, founding)].into()), processes: Arc::new(processes) })
}

fn pass(cluster: &mut Cluster) {
    (0..STEPS).for_each(|_| cluster.tick_after(STEP));
}

/// Three nodes with an active consistent type.
fn cluster() -> Result<Cluster> {
    let mut cluster = Cluster::open(NODES)?;
    for node in 0..NODES {
        cluster.shard(node).keep_birth(life_and_birth(node)?.1);
    }
    pass(&mut cluster);
    let agreement = Arc::new(agreement()?);
    (0..NODES).for_each(|node| cluster.shard(node).agree(Arc::clone(&agreement)));
    pass(&mut cluster);
    for change in [TypeChange::Create(vec![Prop::Consistent(true)]), TypeChange::Activate] {
        cluster.request(Request::ChangeType(TYPE, change));
        pass(&mut cluster);
    }
    Ok(cluster)
}

/// Three nodes that have a number of keys. A group's first write waits for an election.
fn filled() -> Result<Cluster> {
    let mut cluster = cluster()?;
    for number in 0..KEYS {
        let request = cluster.read_frame(&typed_put_frame(Some(TYPE), key(number)));
        let mut reply = cluster.request(request);
        for _ in 0..STEPS {
            if reply.is_some() {
                break;
            }
            cluster.tick_after(STEP);
            reply = cluster.take_reply();
        }
        reply.ok_or("no leader was elected")??;
    }
    pass(&mut cluster);
    Ok(cluster)
}

/// A read of a key that is there.
pub fn get() -> Result<Operation> {
    let (mut cluster, at) = (filled()?, asked(KEYS));
    let frames: Vec<_> = (0..KEYS).map(|number| typed_get_frame(Some(TYPE), key(number))).collect();
    Ok(Box::new(move |number| {
        cluster.advance(PAUSE);
        assert!(cluster.ask(&frames[at(number)]) > VALUE_BYTES);
    }))
}

/// A write of a new key.
pub fn put() -> Result<Operation> {
    let mut cluster = filled()?;
    let new = KEYS..KEYS + WARM + OPERATIONS;
    let frames: Vec<_> = new.map(|number| typed_put_frame(Some(TYPE), key(number))).collect();
    Ok(Box::new(move |number| {
        cluster.advance(PAUSE);
        assert_eq!(cluster.ask(&frames[number as usize]), EMPTY_FRAME);
    }))
}
