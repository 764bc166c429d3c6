//! The permissions that each route needs: one table, exhaustive over routes, pages and methods.
//!
//! A request that answers values needs `riak_kv.get`, also a write that answers the object. Folds, statistics and pages
//! for operators need permissions of their own, where Riak asks for none. `/health/…` needs no login: supervisors and
//! load balancers have none, and it says nothing of clients.
//!
//! A method that a route does not have counts as one that writes; the session refuses it.

use kv::Bucket;
use protocol::http::Method;
use protocol::http::target::Query;
use security::{Needs, Permission as P, Target};

use super::admin::{Page, StrongPage};
use super::fold::{Path, Word};
use super::route::{Form, Route};

/// The needs of a request, before its body is looked at.
pub(super) fn needs<'a>(route: &'a Route, method: Method, query: &Query) -> Needs<'a> {
    let reads = reads(method);
    match route {
        Route::Ready | Route::Live => Needs::Nothing,
        Route::Root | Route::Ping => Needs::Login,
        // They are answered by a sentence alone.
        Route::Unbuilt(_) | Route::WrongTerms(_) => Needs::Login,
        Route::Stats | Route::Metrics => Needs::of([P::Stats], Target::Any),
        Route::Object(place, _) => of_object(&place.bucket, method, query),
        Route::Preflist(place, _) => Needs::of([P::GetPreflist], target(&place.bucket)),
        // A new object, whose key the node invents.
        Route::Keys(place) if method == Method::Post => of_object(&place.bucket, method, query),
        Route::Keys(place) if place.form == Form::Riak && !lists_keys(query) => {
            of_props(&place.bucket, reads)
        }
        Route::Keys(place) => Needs::of([P::ListKeys], target(&place.bucket)),
        Route::Index(place, ..) | Route::Query(place) => Needs::of([P::Index], target(&place.bucket)),
        Route::Props(place) => of_props(&place.bucket, reads),
        Route::TypeProps(name) if reads => Needs::of([P::GetBucketType], Target::Type(name)),
        Route::TypeProps(name) => Needs::of([P::SetBucketType], Target::Type(name)),
        Route::Buckets(bucket_type) => Needs::of([P::ListBuckets], Target::Type(bucket_type)),
        Route::Fold(_) if base::planted!(RouteWithoutPermission) => Needs::Login,
        Route::Fold(path) => of_fold(path),
        Route::Admin(page) => of_page(page, reads),
    }
}

/// Whether a method changes nothing.
fn reads(method: Method) -> bool {
    match method {
        Method::Get | Method::Head => true,
        Method::Put | Method::Post | Method::Delete | Method::NotAllowed | Method::Unknown => false,
    }
}

/// Whether the oldest form of a path asks for keys; otherwise it asks for properties.
fn lists_keys(query: &Query) -> bool {
    query.get("keys").is_some_and(|value| value != "false")
}

fn of_object<'a>(bucket: &'a Bucket, method: Method, query: &Query) -> Needs<'a> {
    let target = target(bucket);
    match method {
        Method::Get | Method::Head => Needs::of([P::Get], target),
        Method::Delete => Needs::of([P::Delete], target),
        Method::Put | Method::Post | Method::NotAllowed | Method::Unknown => {
            let answers = query.get("returnbody").is_some_and(|value| value == "true");
            Needs::of([P::Put], target).and_if(answers, P::Get)
        }
    }
}

fn of_props(bucket: &Bucket, reads: bool) -> Needs<'_> {
    let permission = if reads { P::GetBucket } else { P::SetBucket };
    Needs::of([permission], target(bucket))
}

fn of_fold(path: &Path) -> Needs<'_> {
    match path {
        Path::NVal(..) | Path::Buckets => Needs::of([P::Fold], Target::Any),
        Path::Bucket(word, bucket, _) => {
            let purges = match word {
                Word::Reap | Word::Erase => true,
                Word::Tree | Word::Clocks | Word::Siblings | Word::Sizes | Word::Stats | Word::Tombs => false,
            };
            Needs::of([P::Fold], target(bucket)).and_if(purges, P::Purge)
        }
    }
}

fn of_page(page: &Page, reads: bool) -> Needs<'_> {
    match page {
        Page::OpenApi | Page::Whoami => Needs::Login,
        Page::Status | Page::Members | Page::Strong(StrongPage::Show) | Page::Targets => {
            Needs::of([P::Stats], Target::Any)
        }
        Page::Strong(StrongPage::Copies | StrongPage::Release) => Needs::of([P::Admin], Target::Any),
        Page::Types
        | Page::Type(_)
        | Page::Activate(_)
        | Page::Cluster(_)
        | Page::Backup
        | Page::StopBackup => Needs::of([P::Admin], Target::Any),
        Page::Trees(_) | Page::Compact | Page::Log | Page::Slow | Page::Security => {
            Needs::of([P::Admin], Target::Any)
        }
        Page::Purge | Page::StopPurge => Needs::of([P::Admin], Target::Any).and_if(!reads, P::Purge),
    }
}

fn target(bucket: &Bucket) -> Target<'_> {
    Target::Bucket(&bucket.bucket_type, &bucket.name)
}
