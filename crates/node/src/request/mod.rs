//! Requests on objects: each is a task with a coordinator of `kv`, executed until it is over.

pub(crate) mod actors;
pub(crate) mod execute;
pub(crate) mod repair;
pub(crate) mod replica;
pub(crate) mod task;
