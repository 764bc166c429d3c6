//! The table of permissions, and its agreement with requests: the needs of a route are those of its request.

use bytes::Bytes;
use kv::fold::{Finds, Scope};
use kv::{Request, Return};
use protocol::http::Method;
use protocol::http::target::{Query, split};
use security::{Needs, Permission as P, Permissions};

use super::needs::needs;
use super::pages_tests::request;
use super::route::route;

const METHODS: [(&str, Method); 5] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("PUT", Method::Put),
    ("POST", Method::Post),
    ("DELETE", Method::Delete),
];

fn needed(method: &str, target: &'static str) -> String {
    let (path, query) = split(&Bytes::from_static(target.as_bytes()));
    let route = route(&path).unwrap().unwrap_or_else(|| panic!("{target} names nothing"));
    let (_, method) = METHODS.into_iter().find(|(name, _)| *name == method).unwrap();
    match needs(&route, method, &Query::parse(&query).unwrap()) {
        Needs::All(permissions, target) => format!("{} on {target}", names(permissions)),
        other => format!("{other:?}"),
    }
}

fn names(permissions: Permissions) -> String {
    permissions.iter().map(P::name).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_route_has_its_needs() {
    for (method, target, needs) in [
        ("GET", "/", "Login"),
        ("GET", "/ping", "Login"),
        ("GET", "/health/ready", "Nothing"),
        ("GET", "/health/live", "Nothing"),
        ("GET", "/mapred", "Login"),
        ("GET", "/stats", "annulet.stats on any"),
        ("GET", "/metrics", "annulet.stats on any"),
        ("GET", "/admin/openapi.yaml", "Login"),
        ("GET", "/admin/status", "annulet.stats on any"),
        ("GET", "/admin/log", "annulet.admin on any"),
        ("GET", "/admin/slow", "annulet.admin on any"),
        ("POST", "/admin/security", "annulet.admin on any"),
        ("GET", "/admin/whoami", "Login"),
        ("POST", "/admin/cluster/commit", "annulet.admin on any"),
        ("POST", "/admin/purge", "annulet.purge annulet.admin on any"),
        ("GET", "/admin/purge", "annulet.admin on any"),
        ("DELETE", "/types/t/props", "riak_core.set_bucket_type on t"),
        // Its first request of the node is a read, whose answer no client sees.
        ("DELETE", "/types/t/buckets/b/keys/k", "riak_kv.delete on t/b"),
    ] {
        assert_eq!(needed(method, target), needs, "{method} {target}");
    }
}

/// The needs of a request of the node, as text: said anew, so that the table of routes is not compared with itself.
fn needs_of(request: &Request) -> String {
    let on = |permission, bucket: &kv::Bucket| {
        let name = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        format!("{permission} on {}/{}", name(&bucket.bucket_type), name(&bucket.name))
    };
    let on_type =
        |permission, name: &Bytes| format!("{permission} on {}", String::from_utf8(name.to_vec()).unwrap());
    match request {
        Request::Get(get) => on("riak_kv.get", &get.bucket),
        Request::Put(put) if put.returned == Return::Nothing => on("riak_kv.put", &put.bucket),
        Request::Put(put) => on("riak_kv.get riak_kv.put", &put.bucket),
        Request::Delete(delete) => on("riak_kv.delete", &delete.bucket),
        Request::ListBuckets(list) => on_type("riak_kv.list_buckets", &list.bucket_type),
        Request::ListKeys(list) => on("riak_kv.list_keys", &list.bucket),
        Request::Index(index) => on("riak_kv.index", &index.bucket),
        Request::Query(query) => on("riak_kv.index", &query.bucket),
        Request::GetProps(bucket) => on("riak_core.get_bucket", bucket),
        Request::SetProps(bucket, _) | Request::ResetProps(bucket) => on("riak_core.set_bucket", bucket),
        Request::GetTypeProps(name) => on_type("riak_core.get_bucket_type", name),
        Request::ChangeType(name, _) => on_type("riak_core.set_bucket_type", name),
        Request::GetPreflist(bucket, _) => on("riak_kv.get_preflist", bucket),
        Request::Fold(fold) => match (&fold.fold.scope, &fold.fold.finds) {
            (Scope::NVal(_), _) => "annulet.fold on any".into(),
            (Scope::Bucket(bucket), Finds::Count(_)) => on("annulet.fold annulet.purge", bucket),
            (Scope::Bucket(bucket), _) => on("annulet.fold", bucket),
        },
        Request::ListTypes | Request::ListMembers => panic!("pages for operators have needs of their own"),
    }
}

#[test]
fn the_needs_of_a_route_are_those_of_its_request() {
    for (method, target, body) in [
        ("GET", "/riak/b/k", ""),
        ("HEAD", "/types/t/buckets/b/keys/k", ""),
        ("PUT", "/types/t/buckets/b/keys/k?returnbody=true", "{}"),
        ("PUT", "/buckets/b/keys/k?returnbody=1", "{}"),
        ("POST", "/buckets/b/keys?returnbody=true", "{}"),
        ("POST", "/riak/b?keys=true", "{}"),
        ("GET", "/types/t/buckets/b/keys/k/preflist", ""),
        ("GET", "/riak/b", ""),
        ("GET", "/riak/b?keys=false", ""),
        ("PUT", "/riak/b", r#"{"props":{}}"#),
        ("GET", "/riak/b?keys=true", ""),
        ("PUT", "/riak/b?keys=stream", ""),
        ("GET", "/types/t/buckets/b/keys?keys=true", ""),
        ("GET", "/buckets/b/keys?keys=stream", ""),
        ("GET", "/types/t/buckets?buckets=true", ""),
        ("GET", "/buckets/b/index/f_bin/1", ""),
        ("GET", "/buckets/b/props", ""),
        ("PUT", "/types/t/buckets/b/props", r#"{"props":{}}"#),
        ("DELETE", "/buckets/b/props", ""),
        ("GET", "/types/t/props", ""),
        ("PUT", "/types/t/props", r#"{"props":{}}"#),
        ("GET", "/cachedtrees/nvals/3/root", ""),
        ("GET", "/aaebucketlist", ""),
        ("GET", "/tombs/types/t/buckets/b", ""),
        ("GET", "/objectstats/buckets/b", ""),
        ("GET", "/reap/buckets/b", ""),
        ("GET", "/erase/types/t/buckets/b", ""),
    ] {
        let (_, request) = request(method, target, body);
        assert_eq!(needed(method, target), needs_of(&request), "{method} {target}");
    }
}
