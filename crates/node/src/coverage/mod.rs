//! Requests that cover all partitions: scans of keys and buckets, folds, index queries.

pub(crate) mod fold;
pub(crate) mod gathered;
pub(crate) mod index_pages;
pub(crate) mod index_scan;
pub(crate) mod key_pages;
pub(crate) mod key_scan;
pub(crate) mod walk;
