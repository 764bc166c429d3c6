//! The resource that a path names. Paths come in three generations, and clients of each are about: `/riak/B/K`,
//! `/buckets/B/keys/K`, and `/types/T/buckets/B/keys/K`.

use bytes::Bytes;
use kv::Bucket;
use kv::bucket::DEFAULT_TYPE;
use kv::index::Terms;
use protocol::http::target::{decode, encode, segments};
use protocol::http::{Method, Refused};

use super::admin::{self, ClusterPage, Page, StrongPage, TreesPage};
use super::fault::Fault;
use super::fold;
use super::unbuilt::Unbuilt;

/// The generation of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// `/riak/B/K`
    Riak,
    /// `/buckets/B/keys/K`
    #[default]
    Buckets,
    /// `/types/T/buckets/B/keys/K`
    Types,
}

/// A bucket as a path names it; answers name it the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub form: Form,
    pub bucket: Bucket,
}

/// The resource that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The list of all resources.
    Root,
    /// A sign of life.
    Ping,
    /// The node's readiness for clients.
    Ready,
    /// The liveness of the process.
    Live,
    /// The node's statistics.
    Stats,
    /// An object.
    Object(Place, Bytes),
    /// The vnodes that hold an object.
    Preflist(Place, Bytes),
    /// The keys of a bucket, among which a node may invent one.
    Keys(Place),
    /// The keys of a bucket that an index has under these terms.
    Index(Place, Bytes, Terms),
    /// The findings of a query of several parts in a bucket.
    Query(Place),
    /// The properties of a bucket.
    Props(Place),
    /// The properties of a bucket type.
    TypeProps(Bytes),
    /// The buckets of a type.
    Buckets(Bytes),
    /// The result of a fold over many keys.
    Fold(fold::Path),
    /// The node's statistics for Prometheus.
    Metrics,
    /// A page for operators.
    Admin(Page),
    /// A route of Riak that is not built.
    Unbuilt(Unbuilt),
    /// An index query with a number of terms that no query has, as Riak names it.
    WrongTerms(&'static str),
}

impl Route {
    /// The methods that it takes.
    pub fn methods(&self) -> &'static [Method] {
        match self {
            Route::Root | Route::Ping | Route::Ready | Route::Live => &[Method::Get, Method::Head],
            Route::Stats | Route::Metrics | Route::Preflist(..) => &[Method::Get, Method::Head],
            Route::Admin(page) => admin::allowed(page),
            Route::Props(_) => &[Method::Get, Method::Head, Method::Put, Method::Delete],
            Route::TypeProps(_) => &[Method::Get, Method::Head, Method::Put],
            Route::Query(_) => &[Method::Post],
            Route::Unbuilt(_) | Route::WrongTerms(_) => &[],
            Route::Buckets(_) | Route::Index(..) | Route::Fold(_) => &[Method::Get],
            Route::Keys(place) if place.form == Form::Riak => &[Method::Get, Method::Put, Method::Post],
            Route::Object(..) => &[Method::Get, Method::Head, Method::Put, Method::Post, Method::Delete],
            Route::Keys(_) => &[Method::Get, Method::Post],
        }
    }

    /// Whether an answer comes in pieces, or after a long time.
    pub fn lasts(&self) -> bool {
        matches!(
            self,
            Route::Keys(_) | Route::Buckets(_) | Route::Index(..) | Route::Query(_) | Route::Fold(_)
        )
    }
}

/// The route of a path that is built.
///
/// # Errors
/// If the path names nothing, or something that is not built, or its encoding is malformed.
pub(super) fn built_route(path: &Bytes) -> Result<Route, Fault> {
    match route(path)?.ok_or(Fault::new(404, "not found"))? {
        Route::Unbuilt(feature) => Err(Fault::new(501, feature.sentence())),
        Route::WrongTerms(what) => Err(Fault::bad(format!("Invalid query: {what}"))),
        route => Ok(route),
    }
}

/// What a path names; `None` if nothing. Slashes at its end are passed over, as in Riak.
///
/// # Errors
/// If its encoding is malformed.
pub(super) fn route(path: &Bytes) -> Result<Option<Route>, Refused> {
    let path = without_end_slashes(path);
    let mut rest = segments(&path);
    let first = rest.next().unwrap_or_default();
    match &first[..] {
        b"" => Ok(only(Route::Root, rest)),
        b"ping" => Ok(only(Route::Ping, rest)),
        b"health" => match rest.next() {
            Some(word) if word == "ready" => Ok(only(Route::Ready, rest)),
            Some(word) if word == "live" => Ok(only(Route::Live, rest)),
            _ => Ok(None),
        },
        b"stats" => Ok(only(Route::Stats, rest)),
        b"metrics" => Ok(only(Route::Metrics, rest)),
        b"admin" => admin(rest),
        b"riak" => riak(rest),
        b"buckets" => buckets(Form::Buckets, None, rest),
        b"types" => match (rest.next(), rest.next()) {
            (Some(named), Some(word)) if word == "buckets" => {
                buckets(Form::Types, Some(decode(&named)?), rest)
            }
            (Some(named), Some(word)) if word == "props" => Ok(only(Route::TypeProps(decode(&named)?), rest)),
            _ => Ok(None),
        },
        b"cachedtrees" | b"rangetrees" | b"siblings" | b"objectsizes" | b"objectstats" | b"tombs"
        | b"reap" | b"erase" | b"aaebucketlist" => Ok(fold::path(&first, rest)?.map(Route::Fold)),
        _ => Ok(Unbuilt::of_path(&first, rest.next().is_some()).map(Route::Unbuilt)),
    }
}

/// A path without the slashes at its end; the one that it begins with stays. A slash in a name is `%2F`.
fn without_end_slashes(path: &Bytes) -> Bytes {
    let last = path.iter().rposition(|&byte| byte != b'/');
    path.slice(..last.map_or(1, |last| last + 1))
}

fn admin(mut rest: impl Iterator<Item = Bytes>) -> Result<Option<Route>, Refused> {
    let first = rest.next().unwrap_or_default();
    let page = match &first[..] {
        b"status" => Page::Status,
        b"members" => Page::Members,
        b"openapi.yaml" => Page::OpenApi,
        b"cluster" => match ClusterPage::named(&rest.next().unwrap_or_default()) {
            Some(page) => Page::Cluster(page),
            None => return Ok(None),
        },
        b"backup" => match rest.next() {
            None => Page::Backup,
            Some(word) if word == "stop" => Page::StopBackup,
            Some(_) => return Ok(None),
        },
        b"aae" => match rest.next() {
            None => Page::Trees(TreesPage::Show),
            Some(word) if word == "repair" => Page::Trees(TreesPage::Compare),
            Some(word) if word == "rebuild" => Page::Trees(TreesPage::Rebuild),
            Some(_) => return Ok(None),
        },
        b"compact" => Page::Compact,
        b"strong" => match rest.next() {
            None => Page::Strong(StrongPage::Show),
            Some(word) if word == "copies" => Page::Strong(StrongPage::Copies),
            Some(word) if word == "release" => Page::Strong(StrongPage::Release),
            Some(_) => return Ok(None),
        },
        b"log" => Page::Log,
        b"slow" => Page::Slow,
        b"security" => Page::Security,
        b"whoami" => Page::Whoami,
        b"prometheus" => match rest.next() {
            Some(word) if word == "targets" => Page::Targets,
            _ => return Ok(None),
        },
        b"purge" => match rest.next() {
            None => Page::Purge,
            Some(word) if word == "stop" => Page::StopPurge,
            Some(_) => return Ok(None),
        },
        b"bucket-types" => match (rest.next(), rest.next()) {
            (None, _) => Page::Types,
            (Some(name), None) => Page::Type(decode(&name)?),
            (Some(name), Some(word)) if word == "activate" => Page::Activate(decode(&name)?),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(only(Route::Admin(page), rest))
}

/// All buckets of a type: what stands where a bucket's name would.
fn all_buckets(bucket_type: Option<Bytes>) -> Option<Route> {
    Some(Route::Buckets(bucket_type.unwrap_or(Bytes::from_static(DEFAULT_TYPE))))
}

fn riak(mut rest: impl Iterator<Item = Bytes>) -> Result<Option<Route>, Refused> {
    let Some(name) = rest.next() else { return Ok(all_buckets(None)) };
    let place = Place { form: Form::Riak, bucket: Bucket::untyped(decode(&name)?) };
    object_or_keys(place, rest)
}

fn buckets(
    form: Form,
    bucket_type: Option<Bytes>,
    mut rest: impl Iterator<Item = Bytes>,
) -> Result<Option<Route>, Refused> {
    let Some(name) = rest.next() else { return Ok(all_buckets(bucket_type)) };
    let place = Place { form, bucket: Bucket::typed(bucket_type, decode(&name)?) };
    match rest.next() {
        Some(word) if word == "props" => Ok(only(Route::Props(place), rest)),
        Some(word) if word == "keys" => object_or_keys(place, rest),
        Some(word) if word == "index" => index(place, rest),
        Some(word) if word == "query" => Ok(only(Route::Query(place), rest)),
        Some(word) => Ok(Unbuilt::of_bucket(&word).map(Route::Unbuilt)),
        None => Ok(None),
    }
}

fn index(place: Place, mut rest: impl Iterator<Item = Bytes>) -> Result<Option<Route>, Refused> {
    let Some(field) = rest.next().filter(|field| !field.is_empty()) else { return Ok(None) };
    let Some(first) = rest.next() else { return Ok(Some(Route::WrongTerms("{too_few_arguments,[]}"))) };
    // Where it came as a header's name, when it was written by HTTP, case was lost.
    let field = Bytes::from(decode(&field)?.to_ascii_lowercase());
    let first = decode(&first)?;
    let terms = match rest.next() {
        None => Terms::Exact(first),
        Some(last) => Terms::Range(first, decode(&last)?),
    };
    let too_many = Route::WrongTerms("too_many_arguments");
    Ok(only(Route::Index(place, field, terms), rest).or(Some(too_many)))
}

fn object_or_keys(place: Place, mut rest: impl Iterator<Item = Bytes>) -> Result<Option<Route>, Refused> {
    Ok(match rest.next() {
        None => Some(Route::Keys(place)),
        // No object has an empty key.
        Some(key) if key.is_empty() => None,
        Some(key) => {
            let key = decode(&key)?;
            match rest.next() {
                None => Some(Route::Object(place, key)),
                Some(word) if word == "preflist" && place.form != Form::Riak => {
                    let link_walk = Route::Unbuilt(Unbuilt::LinkWalking);
                    only(Route::Preflist(place, key), rest).or(Some(link_walk))
                }
                Some(_) => Some(Route::Unbuilt(Unbuilt::LinkWalking)),
            }
        }
    })
}

fn only(route: Route, mut rest: impl Iterator<Item = Bytes>) -> Option<Route> {
    rest.next().is_none().then_some(route)
}

impl Place {
    /// Appends the path of the bucket.
    pub fn put_path(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Riak => out.extend_from_slice(b"/riak/"),
            Form::Buckets => out.extend_from_slice(b"/buckets/"),
            Form::Types => {
                out.extend_from_slice(b"/types/");
                encode(&self.bucket.bucket_type, out);
                out.extend_from_slice(b"/buckets/");
            }
        }
        encode(&self.bucket.name, out);
    }

    /// Appends the path of an object in a bucket of the same type.
    pub fn put_object_path(&self, bucket: &[u8], key: &[u8], out: &mut Vec<u8>) {
        match self.form {
            Form::Riak => {
                out.extend_from_slice(b"/riak/");
                encode(bucket, out);
                out.push(b'/');
            }
            Form::Buckets | Form::Types => {
                if self.form == Form::Types {
                    out.extend_from_slice(b"/types/");
                    encode(&self.bucket.bucket_type, out);
                }
                out.extend_from_slice(b"/buckets/");
                encode(bucket, out);
                out.extend_from_slice(b"/keys/");
            }
        }
        encode(key, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &'static str) -> Option<Route> {
        route(&Bytes::from(path)).unwrap()
    }

    fn place(form: Form, bucket_type: &'static str, name: &'static str) -> Place {
        Place { form, bucket: Bucket { bucket_type: bucket_type.into(), name: name.into() } }
    }

    #[test]
    fn paths_of_three_generations_name_the_same() {
        let object = |form| Some(Route::Object(place(form, "default", "b c"), "k/l".into()));
        assert_eq!(named("/riak/b+c/k%2Fl"), object(Form::Riak));
        assert_eq!(named("/buckets/b%20c/keys/k%2fl"), object(Form::Buckets));
        assert_eq!(named("/types/default/buckets/b+c/keys/k%2Fl"), object(Form::Types));
        let keys = |form| Some(Route::Keys(place(form, "default", "b")));
        assert_eq!(named("/riak/b"), keys(Form::Riak));
        assert_eq!(named("/buckets/b/keys/"), keys(Form::Buckets));
        assert_eq!(named("/types/default/buckets/b/keys"), keys(Form::Types));
        assert_eq!(named("/"), Some(Route::Root));
        assert_eq!(named("/ping"), Some(Route::Ping));
    }

    #[test]
    fn slashes_at_the_end_are_passed_over() {
        for path in [
            "/",
            "/ping",
            "/stats",
            "/metrics",
            "/health/ready",
            "/health/live",
            "/buckets",
            "/riak",
            "/riak/b",
            "/riak/b/k",
            "/buckets/b/keys",
            "/buckets/b/keys/k",
            "/buckets/b/keys/k/preflist",
            "/buckets/b/props",
            "/buckets/b/index/f_bin",
            "/buckets/b/index/f_bin/1",
            "/buckets/b/index/f_bin/1/2",
            "/types/t/props",
            "/types/t/buckets/b/keys/k",
            "/types/t/buckets/b/keys/k/b,_,1",
            "/cachedtrees/nvals/3/keysclocks",
            "/admin/members",
            "/mapred",
        ] {
            let named = named(path);
            assert!(named.is_some(), "{path}");
            for slashes in ["/", "//"] {
                assert_eq!(
                    route(&Bytes::from(format!("{path}{slashes}"))).unwrap(),
                    named,
                    "{path}{slashes}"
                );
            }
        }
        let slash = Some(Route::Object(place(Form::Buckets, "default", "b"), "k/".into()));
        assert_eq!(named("/buckets/b/keys/k%2F"), slash, "a slash of the key");
        assert_eq!(named("/buckets/b/keys/k%2F/"), slash);
        assert_eq!(named("/buckets/b/"), None);
    }

    #[test]
    fn pages_beside_objects() {
        for (path, bucket_type) in [("/buckets", "default"), ("/riak", "default"), ("/types/t/buckets", "t")]
        {
            assert_eq!(named(path), Some(Route::Buckets(bucket_type.into())), "{path}");
        }
        let props = |form, bucket_type| Some(Route::Props(place(form, bucket_type, "b")));
        assert_eq!(named("/buckets/b/props"), props(Form::Buckets, "default"));
        assert_eq!(named("/types/t/buckets/b/props"), props(Form::Types, "t"));
        assert_eq!(named("/types/t/props"), Some(Route::TypeProps("t".into())));
        assert_eq!(named("/metrics"), Some(Route::Metrics));
        let of_k = |form, bucket_type| Some(Route::Preflist(place(form, bucket_type, "b"), "k".into()));
        assert_eq!(named("/buckets/b/keys/k/preflist"), of_k(Form::Buckets, "default"));
        assert_eq!(named("/types/t/buckets/b/keys/k/preflist"), of_k(Form::Types, "t"));
        for (path, page) in [
            ("/admin/status", Page::Status),
            ("/admin/members", Page::Members),
            ("/admin/openapi.yaml", Page::OpenApi),
            ("/admin/aae", Page::Trees(TreesPage::Show)),
            ("/admin/aae/repair", Page::Trees(TreesPage::Compare)),
            ("/admin/aae/rebuild", Page::Trees(TreesPage::Rebuild)),
            ("/admin/compact", Page::Compact),
            ("/admin/bucket-types", Page::Types),
            ("/admin/bucket-types/a%20b", Page::Type("a b".into())),
            ("/admin/bucket-types/t/activate", Page::Activate("t".into())),
        ] {
            assert_eq!(named(path), Some(Route::Admin(page)), "{path}");
        }
    }

    #[test]
    fn terms_of_an_index() {
        let of = |form, bucket_type, field: &'static str, terms| {
            Some(Route::Index(place(form, bucket_type, "b"), field.into(), terms))
        };
        let exact = Terms::Exact("v/w".into());
        assert_eq!(named("/buckets/b/index/F_bin/v%2Fw"), of(Form::Buckets, "default", "f_bin", exact));
        let range = Terms::Range("1".into(), "2".into());
        assert_eq!(named("/types/t/buckets/b/index/n_int/1/2"), of(Form::Types, "t", "n_int", range));
        let all = Terms::Exact("_".into());
        assert_eq!(named("/buckets/b/index/$bucket/_"), of(Form::Buckets, "default", "$bucket", all));
        let query = Some(Route::Query(place(Form::Types, "t", "b")));
        assert_eq!(named("/types/t/buckets/b/query"), query);
        assert_eq!(named("/buckets/b/index"), None);
        assert_eq!(named("/buckets/b/index/f_bin"), Some(Route::WrongTerms("{too_few_arguments,[]}")));
        let too_many = Some(Route::WrongTerms("too_many_arguments"));
        assert_eq!(named("/types/t/buckets/b/index/f_bin/1/2/3"), too_many);
    }

    #[test]
    fn routes_that_are_not_built_name_their_feature() {
        for (path, feature) in [
            ("/mapred", Unbuilt::MapReduce),
            ("/mapred/", Unbuilt::MapReduce),
            ("/types/t/buckets/b/datatypes", Unbuilt::DataTypes),
            ("/types/t/buckets/b/datatypes/k", Unbuilt::DataTypes),
            ("/buckets/b/datatypes/k", Unbuilt::DataTypes),
            ("/buckets/b/counters/k", Unbuilt::Counters),
            ("/types/t/buckets/b/counters/k", Unbuilt::Counters),
            ("/buckets/b/keys/k/_,_,_", Unbuilt::LinkWalking),
            ("/buckets/b/keys/k/b,t,1/_,_,0/", Unbuilt::LinkWalking),
            ("/types/t/buckets/b/keys/k/b,_,1", Unbuilt::LinkWalking),
            ("/riak/b/k/_,_,_", Unbuilt::LinkWalking),
            ("/riak/b/k/preflist", Unbuilt::LinkWalking),
            ("/buckets/b/keys/k/preflist/x", Unbuilt::LinkWalking),
            ("/buckets/b/keys/k/%zz", Unbuilt::LinkWalking),
            ("/search/query/i", Unbuilt::Search),
            ("/search/index", Unbuilt::Search),
            ("/search/schema/s", Unbuilt::Search),
            ("/solr/i/select", Unbuilt::Search),
            ("/internal_solr/i/select", Unbuilt::Search),
            ("/queuename/q", Unbuilt::ReplicationQueues),
            ("/membership_request", Unbuilt::ReplicationQueues),
            ("/rangerepl/types/t/buckets/b/queuename/q", Unbuilt::ReplicationQueues),
            ("/rangerepair/buckets/b", Unbuilt::RangeRepair),
            ("/riak-repl/stats", Unbuilt::Replication),
            ("/rtq/b/k", Unbuilt::Replication),
            ("/ctl", Unbuilt::ControlApi),
            ("/luwak", Unbuilt::LargeFiles),
            ("/luwak/k", Unbuilt::LargeFiles),
            ("/ts/v1/tables/t/keys", Unbuilt::TimeSeries),
        ] {
            assert_eq!(named(path), Some(Route::Unbuilt(feature)), "{path}");
        }
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in [
            "/x",
            "//ping",
            "/buckets/b/x/k",
            "/buckets/b",
            "/buckets/b/keys//k",
            "/mapred/x",
            "/mapredx",
            "/ctl/x",
            "/types/t",
            "/types/t/datatypes/k",
            "/admin",
            "/types/t/props/x",
        ] {
            assert_eq!(named(path), None, "{path}");
        }
        assert!(route(&Bytes::from("/buckets/%/keys/k")).is_err());
        assert_eq!(
            named("/buckets//keys/k"),
            Some(Route::Object(place(Form::Buckets, "default", ""), "k".into()))
        );
        assert_eq!(
            named("/buckets/../keys/.."),
            Some(Route::Object(place(Form::Buckets, "default", ".."), "..".into()))
        );
    }
}
