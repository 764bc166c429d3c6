//! Objects: a write over what is stored, the join of two replicas, reading a head in place.

use super::{Operation, value};
use crate::Result;
use bytes::Bytes;
use object::{Actor, Dot, HeadView, Metadata, Object, Policy, Put};
use std::hint::black_box;

fn metadata(number: u64) -> Metadata {
    Metadata {
        content_type: Some(Bytes::from_static(b"application/octet-stream")),
        last_modified: number,
        ..Metadata::default()
    }
}

/// An object with one sibling, written by three actors in turn.
fn stored() -> Result<Object> {
    let mut object: Option<Object> = None;
    for (counter, actor) in [(5, 10), (7, 20), (9, 30)] {
        let context = object.as_ref().map(|object| object.head().context().clone());
        let put = Put { context, metadata: metadata(counter), value: value() };
        object = Some(object::update(object, put, Dot::new(Actor(actor), counter), Policy::AllowMult)?);
    }
    Ok(object.ok_or("three writes leave an object")?)
}

fn over(object: &Object, actor: u64, counter: u64) -> Result<Object> {
    let context = Some(object.head().context().clone());
    let put = Put { context, metadata: metadata(counter), value: value() };
    Ok(object::update(Some(object.clone()), put, Dot::new(Actor(actor), counter), Policy::AllowMult)?)
}

pub fn update() -> Result<Operation> {
    let (object, value) = (stored()?, value());
    Ok(Box::new(move |number| {
        let context = Some(object.head().context().clone());
        let put = Put { context, metadata: metadata(number), value: value.clone() };
        let dot = Dot::new(Actor(30), 100 + number);
        let updated = object::update(Some(object.clone()), put, dot, Policy::AllowMult);
        assert_eq!(updated.expect("the dot is new").head().siblings().len(), 1);
    }))
}

pub fn merge() -> Result<Operation> {
    let base = stored()?;
    // Two writes that have not seen each other.
    let (left, right) = (over(&base, 10, 50)?, over(&base, 20, 60)?);
    Ok(Box::new(move |_| {
        let merged = object::merge(black_box(&left), black_box(&right)).expect("there are few actors");
        assert_eq!(merged.head().siblings().len(), 2);
    }))
}

pub fn view() -> Result<Operation> {
    let mut bytes = Vec::new();
    stored()?.head().encode(&mut bytes);
    Ok(Box::new(move |_| {
        let view = HeadView::parse(black_box(&bytes)).expect("it was encoded");
        black_box((view.is_tombstone(), view.values_len(), view.newest()));
    }))
}
