//! The list of what there is, which clients read to find the rest; as JSON where that is asked for.

use protocol::http::{Answer, accept};

/// Riak's name of each resource that is built, and the first segments of its paths. Older clients look here before they
/// use what is newer. JSON names the first one.
const RESOURCES: [(&str, &[&str]); 12] = [
    (
        "riak_kv_wm_aaefold",
        &[
            "/aaebucketlist",
            "/cachedtrees",
            "/erase",
            "/objectsizes",
            "/objectstats",
            "/rangetrees",
            "/reap",
            "/siblings",
            "/tombs",
        ],
    ),
    ("riak_kv_wm_bucket_type", &["/types"]),
    ("riak_kv_wm_buckets", &["/buckets", "/riak", "/types"]),
    ("riak_kv_wm_index", &["/buckets", "/types"]),
    ("riak_kv_wm_keylist", &["/buckets", "/riak", "/types"]),
    ("riak_kv_wm_object", &["/buckets", "/riak", "/types"]),
    ("riak_kv_wm_ping", &["/ping"]),
    ("riak_kv_wm_preflist", &["/buckets", "/types"]),
    ("riak_kv_wm_props", &["/buckets", "/riak", "/types"]),
    ("riak_kv_wm_query", &["/buckets", "/types"]),
    // What is `riak_kv_wm_object` in newer versions.
    ("riak_kv_wm_raw", &["/riak"]),
    ("riak_kv_wm_stats", &["/stats"]),
];

/// Whether a client would rather have JSON.
pub(super) fn wants_json(accepted: Option<&[u8]>) -> bool {
    let Some(accepted) = accepted else { return false };
    accept::quality(accepted, b"application/json") > accept::quality(accepted, b"text/html")
}

/// Writes the list.
pub(super) fn answer(mut answer: Answer<'_>, as_json: bool) {
    let all = || RESOURCES.iter().flat_map(|(name, paths)| paths.iter().map(move |path| (*name, *path)));
    let list = |item: &dyn Fn(&str, &str) -> String, between: &str| {
        all().map(|(name, path)| item(name, path)).collect::<Vec<_>>().join(between)
    };
    answer.header("Vary", "Accept");
    answer.header("Link", list(&|name, path| format!("<{path}>; rel=\"{name}\""), ", "));
    if as_json {
        answer.header("Content-Type", "application/json");
        let item = |(name, paths): &(&str, &[&str])| format!("\"{name}\":\"{}\"", paths[0]);
        let items = RESOURCES.iter().map(item).collect::<Vec<_>>().join(",");
        answer.body(format!("{{{items}}}").as_bytes());
    } else {
        answer.header("Content-Type", "text/html");
        let items = list(&|name, path| format!("<li><a href=\"{path}\">{name}</a></li>"), "");
        answer.body(format!("<html><body><ul>{items}</ul></body></html>").as_bytes());
    }
}
