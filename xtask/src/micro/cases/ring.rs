//! Placements of requests on the largest ring.

use super::{OPERATIONS, Operation, WARM};
use crate::Result;
use experiments::rings::{RingShard, Shape};
use ring::NodeId;
use std::hint::black_box;

const PARTITIONS: u32 = 16_384;
const NODES: u16 = 1_000;

fn shape() -> Result<Shape> {
    Ok(Shape::new(PARTITIONS, NODES)?)
}

/// Three replicas, with these nodes down.
fn placement(down: &[NodeId]) -> Result<Operation> {
    let shape = shape()?;
    let shard = RingShard::open(shape, down, &std::env::temp_dir())?;
    let positions = shape.positions(usize::try_from(WARM + OPERATIONS)?);
    Ok(Box::new(move |number| {
        black_box(shard.participants(positions[number as usize]));
    }))
}

pub fn all_up() -> Result<Operation> {
    placement(&[])
}

pub fn a_tenth_down() -> Result<Operation> {
    placement(&shape()?.down())
}
