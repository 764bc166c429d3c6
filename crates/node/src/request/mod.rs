//! Requests on objects: each is a task with a coordinator of `kv`, executed until it is over.

pub(crate) mod actors;
pub(crate) mod at_once;
pub(crate) mod dual_write;
pub(crate) mod execute;
pub(crate) mod hint_writer;
pub(crate) mod place;
pub(crate) mod repair;
pub(crate) mod replica;
pub(crate) mod slow;
pub(crate) mod task;
pub(crate) mod unsent;
