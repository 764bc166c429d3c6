//! Messages between the shards of a node. Messages between two shards arrive in order, or not at all when
//! the process ends.

use base::Monotonic;
use kv::index::{RowsAsk, RowsPage};
use kv::{Error, Page, PageAsk, PropsChange, Request, Response};

/// A shard of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// Names a client's request at the shard that its connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The times of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// When it came to this node.
    pub came: Monotonic,
    /// When the client stops waiting.
    pub deadline: Monotonic,
}

/// A question for a page of a scan.
#[derive(Debug)]
pub enum CoverageAsk {
    /// Of names, or of the sum of a fold.
    Keys(PageAsk),
    /// Of rows.
    Rows(Box<RowsAsk>),
}

/// The answer to it.
#[derive(Debug)]
pub enum CoveragePage {
    /// Names, or the sum of a fold.
    Keys(Result<Page, Error>),
    /// Rows.
    Rows(Result<RowsPage, Error>),
}

/// A message from one shard to another.
#[derive(Debug)]
pub enum Hop {
    /// A request for a key of the receiver's.
    Request {
        /// Whose client asked.
        from: ShardId,
        /// The name of the request there.
        id: RequestId,
        /// The request.
        request: Box<Request>,
        /// Its times.
        times: RequestTimes,
    },
    /// The answer to a [`Hop::Request`].
    Answer {
        /// The request.
        id: RequestId,
        /// The answer.
        result: Box<Result<Response, Error>>,
    },
    /// Asks for a page of a scan.
    AskPage {
        /// The shard of the scan.
        from: ShardId,
        /// The question there.
        question: u64,
        /// The page that is asked for.
        ask: CoverageAsk,
    },
    /// The answer to a [`Hop::AskPage`].
    Page {
        /// The question.
        question: u64,
        /// The page.
        page: CoveragePage,
    },
    /// The properties of a bucket or a bucket type were changed.
    Props {
        /// The shard that changed them.
        from: ShardId,
        /// The name of the change there.
        change: u64,
        /// The change.
        props: PropsChange,
    },
    /// Resets of bucket properties need not be remembered any more.
    ForgetResets {
        /// The resets.
        resets: Vec<PropsChange>,
    },
    /// The properties of a change are in force at the sender.
    PropsInForce {
        /// The change.
        change: u64,
    },
}
