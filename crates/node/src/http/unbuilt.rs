//! Routes of Riak that are not built here. They answer 501 and name the feature, whatever the method: a client would
//! take 404 for an object or a value that is not there. `docs/riak-compatibility.md` lists them.

/// A feature of Riak that has routes of its own, and that is not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unbuilt {
    /// `/mapred`
    MapReduce,
    /// `/types/T/buckets/B/datatypes/K`
    DataTypes,
    /// `/buckets/B/counters/K`
    Counters,
    /// `/buckets/B/keys/K/BUCKET,TAG,KEEP`
    LinkWalking,
    /// `/search/…`, `/solr/…`
    Search,
    /// `/queuename/Q` and what fills these queues
    ReplicationQueues,
    /// `/riak-repl/stats`, `/rtq/B/K`
    Replication,
    /// `/rangerepair/…`
    RangeRepair,
    /// `/ctl`
    ControlApi,
    /// `/luwak/…`
    LargeFiles,
    /// `/ts/…`
    TimeSeries,
}

/// The first segments of such routes. Below some of them Riak has nothing.
const ROOTS: [(&str, bool, Unbuilt); 13] = [
    ("mapred", false, Unbuilt::MapReduce),
    ("search", true, Unbuilt::Search),
    ("solr", true, Unbuilt::Search),
    ("internal_solr", true, Unbuilt::Search),
    ("queuename", true, Unbuilt::ReplicationQueues),
    ("membership_request", false, Unbuilt::ReplicationQueues),
    ("rangerepl", true, Unbuilt::ReplicationQueues),
    ("rangerepair", true, Unbuilt::RangeRepair),
    ("riak-repl", true, Unbuilt::Replication),
    ("rtq", true, Unbuilt::Replication),
    ("ctl", false, Unbuilt::ControlApi),
    ("luwak", true, Unbuilt::LargeFiles),
    ("ts", true, Unbuilt::TimeSeries),
];

impl Unbuilt {
    /// The feature of a path, by its first segment and whether more follows it.
    pub fn of_path(first: &[u8], has_more: bool) -> Option<Unbuilt> {
        let (.., feature) = ROOTS
            .into_iter()
            .find(|(root, goes_on, _)| root.as_bytes() == first && (*goes_on || !has_more))?;
        Some(feature)
    }

    /// The feature of a path below a bucket, by the segment that follows its name.
    pub fn of_bucket(word: &[u8]) -> Option<Unbuilt> {
        match word {
            b"datatypes" => Some(Unbuilt::DataTypes),
            b"counters" => Some(Unbuilt::Counters),
            _ => None,
        }
    }

    /// What a client is told.
    pub fn sentence(self) -> &'static str {
        match self {
            Unbuilt::MapReduce => "map-reduce is not built",
            Unbuilt::DataTypes => "data types are not built",
            Unbuilt::Counters => "counters are not built",
            Unbuilt::LinkWalking => {
                "link walking is not built, and nothing else is below a key: a slash in a key is written %2F"
            }
            Unbuilt::Search => "search is not built",
            Unbuilt::ReplicationQueues => "replication queues are not built",
            Unbuilt::Replication => "replication between clusters is not built",
            Unbuilt::RangeRepair => "repair of a range is not built: see annulet admin aae-repair",
            Unbuilt::ControlApi => "Riak's control API is not built: see /admin/openapi.yaml",
            Unbuilt::LargeFiles => "large files in pieces (luwak) are not built",
            Unbuilt::TimeSeries => "time series are not built",
        }
    }
}
