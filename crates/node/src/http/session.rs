//! One client's connection: bytes in, requests out; responses in, bytes out.
//!
//! 1. [`Session::receive`] takes a request off the input. What concerns no data (ping, the list of what there is,
//!    whatever is wrong) it answers itself; anything else is a request for the node, or a question about it.
//!    With security, a head that offers a login comes out first, and nothing of its body is read before the shell has
//!    verified it ([`Session::on_login`]). No request passes without the permissions that it needs.
//! 2. The node answers with [`Session::respond`], which may ask it something else; or the shell with
//!    [`Session::answer`].
//! 3. Only then is the next request looked at: what a client sends ahead waits.
//!
//! Invariants: requests are answered in the order they came, each once; after one that cannot be read comes its
//! answer, and nothing else.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Reservation;
use base::budget::LARGE_BYTES;
use bytes::{Bytes, BytesMut};
use kv::{Error, Response};
use protocol::errors;
use protocol::http::target::{self, Query};
use protocol::http::{Answer, Connection, Head, Method, Progress, Reader, Refused, Waits, date};
use security::{Access, Denied};

use super::admin::{self, BackupPage, ClusterPage, CompactPage, Page, PurgePage, StrongPage, TreesPage};
use super::change::Change;
use super::fault::Fault;
use super::fold;
use super::guard::Guard;
use super::hosts::HostNames;
use super::index;
use super::listing::{self, Went};
use super::login::{self, Claim};
use super::needs::needs;
use super::object;
use super::preflist;
use super::props;
use super::query;
use super::root;
use super::route::{Form, Route, route};

/// Leave to send a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a step of the connection came to.
#[derive(Debug)]
pub enum Incoming {
    /// More bytes must be read first; the input has room for some.
    Wait(Waits),
    /// Something was answered: bytes were appended to the output.
    Answered,
    /// A request for the node. [`Session::respond`] comes before the next [`Session::receive`].
    Request(kv::Request),
    /// A login that is to be verified. [`Session::on_login`] comes before the next [`Session::receive`].
    Login(Claim),
    /// A question to the whole node. [`Session::answer`] comes before the next [`Session::receive`].
    Question(Question),
    /// Send what the output holds and close.
    Close,
}

/// What no shard alone can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is the node doing?
    Stats,
    /// The same for Prometheus, in the form that this header asks for.
    Metrics {
        /// `Accept`; empty if there is none.
        accept: Bytes,
    },
    /// Where does the node stand?
    Status,
    /// Are clients to be sent to the node?
    Ready,
    /// Is the process to be left running?
    Live,
    /// Where does Prometheus find the members?
    Targets,
    /// What are the levels of the log, or may one be set? With the request's body if it is a change.
    Log(Option<Bytes>),
    /// Which requests were slow lately, or may their threshold be changed? With the request's body if it is a change.
    Slow(Option<Bytes>),
    /// What do the nodes of the cluster agree on, or may it be changed so? With the request's body.
    Cluster(ClusterPage, Bytes),
    /// How is the node's backup, or may one be made so? With the request's body.
    Backup(BackupPage, Bytes),
    /// How does it stand with the node's hash trees, or may something be done with them? With the request's body.
    Trees(TreesPage, Bytes),
    /// The state of the compaction of the node's stores, or its begin.
    Compact(CompactPage),
    /// The groups of consistent bucket types, or their recovery. With the request's body.
    Strong(StrongPage, Bytes),
    /// How is the node's purge, or may one be begun?
    Purge(PurgePage),
    /// A command about users, groups, sources and grants, in the request's body, which may have a password.
    Security(Bytes),
    /// Which user asks?
    Whoami,
}

/// What the answer under way is to.
#[derive(Debug)]
enum Asked {
    Nothing,
    Object(object::Asked),
    Preflist,
    Props(props::Asked),
    Listing(listing::Asked),
    Index(index::Asked),
    Query,
    Fold,
    Admin(admin::Asked),
}

/// What is to be done once the login is verified.
#[derive(Debug)]
enum Pending {
    Nothing,
    /// The client waits for leave to send the body.
    Continue,
    Request(Box<Head>, Bytes),
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    reader: Reader,
    guard: Guard,
    /// Memory for the body that is arriving, if it is large.
    memory: Option<Reservation>,
    connection: Connection,
    /// The second that the date names.
    seconds: u64,
    asked: Asked,
    closing: bool,
    is_leaving: bool,
    is_stopping: bool,
    /// The change that the request asks for, until it is taken for the audit log.
    change: Option<Change>,
    access: Access,
    /// The name in the certificate of the connection.
    certified: Option<Vec<u8>>,
    pending: Pending,
}

impl Session {
    /// A new connection to a node that serves more than its own machine.
    pub fn new() -> Session {
        Session::guarded(Arc::default(), None)
    }

    /// A new connection by the local socket of a node, which no browser reaches.
    pub fn local() -> Session {
        let mut session = Session::new();
        session.access.serve_locally();
        session
    }

    /// A new connection to the address `local` of a node with these names.
    pub fn guarded(hosts: Arc<HostNames>, local: Option<IpAddr>) -> Session {
        let connection = Connection {
            is_http11: true,
            keep_alive: true,
            head_only: false,
            sandboxed: false,
            date: date::format(0),
        };
        Session {
            reader: Reader::default(),
            guard: Guard::new(hosts, local),
            memory: None,
            connection,
            seconds: 0,
            asked: Asked::Nothing,
            closing: false,
            is_leaving: false,
            is_stopping: false,
            change: None,
            access: Access::default(),
            certified: None,
            pending: Pending::Nothing,
        }
    }

    /// The connection is under TLS. `certified` is the name in the client's certificate, if it has shown one.
    pub fn secure(&mut self, certified: Option<Vec<u8>>) {
        self.access.secure();
        self.guard.secure();
        self.certified = certified;
    }

    /// The rights of the connection.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The rights of the connection, to have it go by a newer policy.
    pub fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// Answers the request under way, of which nothing was answered, and which the policy does not allow any more.
    pub fn deny(&mut self, why: Denied, out: &mut Vec<u8>) {
        Fault::from(why).write(self.connection, out);
    }

    /// Answers the request under way, which a limit of its user has no room for before this time is over.
    pub fn limit(&mut self, wait: Duration, out: &mut Vec<u8>) {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let mut answer = Answer::new(out, self.connection, 429);
        answer.header("Retry-After", seconds.to_string());
        answer.header("Content-Type", "text/plain");
        answer.body(format!("{}\n", errors::RATE_LIMITED).as_bytes());
    }

    /// Takes the result of the login that [`Session::receive`] gave out last: the client is the user of this name, or
    /// of none. A body that is still to come is not waited for then.
    pub fn on_login(&mut self, name: Option<&[u8]>, now: u64, out: &mut Vec<u8>) {
        if let Some(name) = name {
            self.access.log_in(name);
        }
        let waits_for_body = !matches!(self.pending, Pending::Request(..));
        if waits_for_body && let Err(denied) = self.access.admits() {
            self.refuse(now, login::refused(&denied), false, out);
        }
    }

    /// Refuses bodies that are larger than this: the node has no memory for them.
    pub fn bound(&mut self, body_max: usize) {
        self.reader.bound(body_max);
    }

    /// Has memory for the body that is arriving, of which `input` bytes wait: as much as its head says, or as has come
    /// of it. False if `reserve` has not so much, and then the request is to be given up.
    pub fn holds_memory(&mut self, input: usize, reserve: impl FnOnce(usize) -> Option<Reservation>) -> bool {
        let bytes = self.reader.arriving(input);
        match &mut self.memory {
            Some(memory) => bytes <= memory.bytes() || memory.resize(bytes),
            None if bytes < LARGE_BYTES => true,
            None => {
                self.memory = reserve(bytes);
                self.memory.is_some()
            }
        }
    }

    /// Answers that the request whose body is arriving is too much at the moment. How many bytes are to be skipped
    /// before the next request; none if the connection is to end.
    pub fn give_up(&mut self, now: u64, out: &mut Vec<u8>) -> usize {
        self.memory = None;
        match self.reader.give_up() {
            Some((head, bytes)) if head.keep_alive => {
                self.begin(now, &head);
                Fault::from(Refused::new(503, protocol::errors::OVERLOAD)).write(self.connection, out);
                bytes
            }
            _ => {
                self.refuse_for_now(now, out);
                0
            }
        }
    }

    /// Whether the node is about to leave its cluster: it serves what comes, and tells balancers to turn elsewhere.
    pub fn leaving(&mut self, is_leaving: bool) {
        self.is_leaving = is_leaving;
    }

    /// Whether the node stops: the connection ends with the answer to its next request, which tells the client.
    pub fn stopping(&mut self, is_stopping: bool) {
        self.is_stopping = is_stopping;
    }

    /// Takes the next request off `input`, if it is complete. `now` is the time in seconds since 1970.
    pub fn receive(&mut self, now: u64, input: &mut BytesMut, out: &mut Vec<u8>) -> Incoming {
        if let Some(incoming) = self.proceed(now, out) {
            return incoming;
        }
        if self.closing {
            return Incoming::Close;
        }
        let (mut is_head, mut claim) = (false, None);
        let progress = self.reader.next_if(input, |head| {
            is_head = head.method == Method::Head;
            self.change = Change::of(head);
            let admitted = self.guard.admit(head);
            self.connection.head_only = is_head;
            self.connection.sandboxed = self.guard.is_shown();
            admitted?;
            claim = login::claim(head, &mut self.access, self.certified.as_deref())?;
            Ok(())
        });
        let progress = match (progress, claim) {
            (Ok(progress), Some(claim)) => return self.log_in_first(claim, progress),
            (progress, _) => progress,
        };
        match progress {
            Ok(Progress::Wait(waits)) => Incoming::Wait(waits),
            Ok(Progress::Continue) => {
                out.extend_from_slice(CONTINUE);
                Incoming::Answered
            }
            Ok(Progress::Request(head, body)) => {
                let body = match self.memory.take() {
                    Some(memory) => memory.hold(body),
                    None => body,
                };
                self.on_complete(now, &head, body, out)
            }
            Err(refused) => {
                self.refuse(now, refused, is_head, out);
                Incoming::Close
            }
        }
    }

    /// Keeps a request until its login is verified.
    fn log_in_first(&mut self, claim: Claim, progress: Progress) -> Incoming {
        self.pending = match progress {
            Progress::Wait(_) => Pending::Nothing,
            Progress::Continue => Pending::Continue,
            Progress::Request(head, body) => Pending::Request(Box::new(head), body),
        };
        Incoming::Login(claim)
    }

    /// Goes on with the request whose login was verified.
    fn proceed(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Incoming> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Continue if !self.closing => {
                out.extend_from_slice(CONTINUE);
                Some(Incoming::Answered)
            }
            Pending::Nothing | Pending::Continue => None,
            Pending::Request(head, body) => Some(self.on_complete(now, &head, body, out)),
        }
    }

    fn on_complete(&mut self, now: u64, head: &Head, body: Bytes, out: &mut Vec<u8>) -> Incoming {
        self.begin(now, head);
        self.on_request(head, body, out).unwrap_or_else(|fault| {
            fault.write(self.connection, out);
            Incoming::Answered
        })
    }

    /// Takes the node's answer to the request that [`Session::receive`] gave out last. What it returns is to be asked
    /// next; its answer comes here too.
    pub fn respond(&mut self, result: Result<Response, Error>, out: &mut Vec<u8>) -> Option<kv::Request> {
        match &mut self.asked {
            Asked::Object(asked) => return object::respond(asked, result, self.connection, out),
            Asked::Preflist => preflist::respond(result, self.connection, out),
            Asked::Props(asked) => props::respond(asked, result, self.connection, out),
            Asked::Admin(asked) => admin::respond(asked, result, self.connection, out),
            Asked::Listing(asked) => match listing::respond(asked, result, self.connection, out) {
                Went::Well => {}
                Went::Broken => self.closing = true,
            },
            Asked::Index(asked) => match index::respond(asked, result, self.connection, out) {
                Went::Well => {}
                Went::Broken => self.closing = true,
            },
            Asked::Query => query::respond(result, self.connection, out),
            Asked::Fold => fold::respond(result, self.connection, out),
            Asked::Nothing => unreachable!("the node answers what it was asked"),
        }
        None
    }

    /// Answers the question that [`Session::receive`] gave out last.
    pub fn answer(&mut self, status: u16, content_type: &str, body: &[u8], out: &mut Vec<u8>) {
        let mut answer = Answer::new(out, self.connection, status);
        answer.header("Content-Type", content_type);
        answer.body(body);
    }

    /// Takes the change that the last request asked for; `None` if it asked for none.
    pub fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Bytes of a request that were taken off the input before it is complete.
    pub fn held(&self) -> usize {
        self.reader.held()
    }

    /// Says that a request is too much for the node at the moment. Nothing is read after that.
    pub fn refuse_for_now(&mut self, now: u64, out: &mut Vec<u8>) {
        self.refuse(now, Refused::new(503, protocol::errors::OVERLOAD), false, out);
    }

    /// Says that the client takes too long to send what it has begun. Nothing is read after that.
    pub fn time_out(&mut self, now: u64, out: &mut Vec<u8>) {
        self.refuse(now, Refused::new(408, "the request comes too slowly"), false, out);
    }

    /// Says why a connection is not served. Nothing is read after that.
    pub fn turn_away(&mut self, now: u64, connections_max: usize, out: &mut Vec<u8>) {
        let text = format!("too many connections: the limit is {connections_max}");
        self.refuse(now, Refused::new(503, text), false, out);
    }

    fn refuse(&mut self, now: u64, refused: Refused, head_only: bool, out: &mut Vec<u8>) {
        self.closing = true;
        self.set_time(now);
        let connection = Connection { is_http11: true, keep_alive: false, head_only, ..self.connection };
        Fault::from(refused).write(connection, out);
    }

    fn begin(&mut self, now: u64, head: &Head) {
        self.set_time(now);
        let keep_alive = head.keep_alive && !self.is_stopping;
        self.closing = !keep_alive;
        self.connection.is_http11 = head.is_http11;
        self.connection.keep_alive = keep_alive;
        self.asked = Asked::Nothing;
    }

    fn set_time(&mut self, now: u64) {
        if now != self.seconds {
            self.seconds = now;
            self.connection.date = date::format(now);
        }
    }

    fn on_request(&mut self, head: &Head, body: Bytes, out: &mut Vec<u8>) -> Result<Incoming, Fault> {
        let (path, query) = target::split(&head.target());
        let route = built_route(&path);
        if !matches!(route, Ok(Route::Ready | Route::Live)) {
            self.access.admits()?;
        }
        if head.method == Method::Unknown {
            return Err(Fault::new(501, "the method is not known"));
        }
        let route = route?;
        if !allowed(&route).contains(&head.method) {
            self.not_allowed(&route, out);
            return Ok(Incoming::Answered);
        }
        // Its links are to be followed, and it holds nothing of a client's.
        self.connection.sandboxed &= route != Route::Root;
        let query = Query::parse(&query)?;
        self.check_needs(&route, head.method, &query)?;
        if let Some(incoming) = self.on_node_page(&route, head, out) {
            return Ok(incoming);
        }
        if let Route::Admin(page) = &route {
            admin::check_content_type(head)?;
            return self.on_admin(page, head.method, &body, out);
        }

        let Some((request, asked)) = request_of(route, head, &query, body, self.connection)? else {
            return Ok(self.list_nothing(out));
        };
        self.asked = asked;
        Ok(Incoming::Request(request))
    }

    /// Answers a page about the node, or asks its program for it; `None` of any other route.
    fn on_node_page(&mut self, route: &Route, head: &Head, out: &mut Vec<u8>) -> Option<Incoming> {
        Some(match route {
            Route::Root => {
                let answer = Answer::new(out, self.connection, 200);
                root::answer(answer, root::wants_json(head.header("accept")));
                Incoming::Answered
            }
            Route::Ping if self.is_leaving => {
                self.answer(503, "text/html", b"leaving", out);
                Incoming::Answered
            }
            Route::Ping => {
                self.answer(200, "text/html", b"OK", out);
                Incoming::Answered
            }
            Route::Ready => Incoming::Question(Question::Ready),
            Route::Stats => Incoming::Question(Question::Stats),
            Route::Live => Incoming::Question(Question::Live),
            Route::Metrics => {
                let accept = Bytes::copy_from_slice(head.header("accept").unwrap_or_default());
                Incoming::Question(Question::Metrics { accept })
            }
            _ => return None,
        })
    }

    /// Checks the permissions of a request, and keeps what it needs if it may take long.
    fn check_needs(&mut self, route: &Route, method: Method, query: &Query) -> Result<(), Denied> {
        self.access.end();
        match self.access.is_guarded() {
            false => Ok(()),
            true => self.access.begin(needs(route, method, query), lasts(route)),
        }
    }

    fn list_nothing(&mut self, out: &mut Vec<u8>) -> Incoming {
        listing::nothing(self.connection, out);
        Incoming::Answered
    }

    fn on_admin(
        &mut self,
        page: &Page,
        method: Method,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Incoming, Fault> {
        if let Some((request, asked)) = admin::request(page, method, body)? {
            self.asked = Asked::Admin(asked);
            return Ok(Incoming::Request(request));
        }
        Ok(match page {
            Page::Status => Incoming::Question(Question::Status),
            Page::Cluster(page) => Incoming::Question(Question::Cluster(*page, Bytes::copy_from_slice(body))),
            Page::Backup | Page::StopBackup => {
                let page = match (page, method) {
                    (Page::StopBackup, _) => BackupPage::Stop,
                    (_, Method::Post) => BackupPage::Begin,
                    _ => BackupPage::Show,
                };
                Incoming::Question(Question::Backup(page, Bytes::copy_from_slice(body)))
            }
            Page::Trees(page) => Incoming::Question(Question::Trees(*page, Bytes::copy_from_slice(body))),
            Page::Compact if method == Method::Post => {
                Incoming::Question(Question::Compact(CompactPage::Begin))
            }
            Page::Compact => Incoming::Question(Question::Compact(CompactPage::Show)),
            Page::Strong(page) => Incoming::Question(Question::Strong(*page, Bytes::copy_from_slice(body))),
            Page::Targets => Incoming::Question(Question::Targets),
            Page::Log => {
                let body = (method == Method::Post).then(|| Bytes::copy_from_slice(body));
                Incoming::Question(Question::Log(body))
            }
            Page::Slow => {
                let body = (method == Method::Post).then(|| Bytes::copy_from_slice(body));
                Incoming::Question(Question::Slow(body))
            }
            Page::Purge => Incoming::Question(Question::Purge(admin::purge_page(method, body)?)),
            Page::StopPurge => Incoming::Question(Question::Purge(PurgePage::Stop)),
            Page::Whoami => Incoming::Question(Question::Whoami),
            Page::Security => Incoming::Question(Question::Security(Bytes::copy_from_slice(body))),
            _ => {
                self.answer(200, "application/yaml", admin::OPENAPI.as_bytes(), out);
                Incoming::Answered
            }
        })
    }

    fn not_allowed(&mut self, route: &Route, out: &mut Vec<u8>) {
        let names = allowed(route).iter().map(|method| match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::NotAllowed | Method::Unknown => unreachable!("nowhere allowed"),
        });
        let mut answer = Answer::new(out, self.connection, 405);
        answer.header("Allow", names.collect::<Vec<_>>().join(", "));
        answer.body(b"");
    }
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

fn allowed(route: &Route) -> &'static [Method] {
    match route {
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

/// The request that a route asks of the stores, and the form of its answer; `None` if nothing is to be listed.
fn request_of(
    route: Route,
    head: &Head,
    query: &Query,
    body: Bytes,
    connection: Connection,
) -> Result<Option<(kv::Request, Asked)>, Fault> {
    Ok(Some(match route {
        Route::Object(place, key) => {
            let (request, asked) = object::request(place, Some(key), head, query, body)?;
            (request, Asked::Object(asked))
        }
        Route::Preflist(place, key) => (kv::Request::GetPreflist(place.bucket, key), Asked::Preflist),
        Route::Keys(place) if head.method == Method::Post => {
            let (request, asked) = object::request(place, None, head, query, body)?;
            (request, Asked::Object(asked))
        }
        // The oldest form has a bucket's properties and its keys in one place.
        Route::Keys(place)
            if place.form == Form::Riak && query.get("keys").is_none_or(|it| it == "false") =>
        {
            let (request, asked) = props::of_bucket(place.bucket, head.method, &body)?;
            (request, Asked::Props(asked))
        }
        Route::Keys(place) => {
            let listing = listing::keys(place.bucket, query, connection)?;
            return Ok(listing.map(|(request, asked)| (request, Asked::Listing(asked))));
        }
        Route::Buckets(bucket_type) => {
            let listing = listing::buckets(bucket_type, query, connection)?;
            return Ok(listing.map(|(request, asked)| (request, Asked::Listing(asked))));
        }
        Route::Index(place, field, terms) => {
            let (request, asked) = index::request(place.bucket, field, terms, query, connection)?;
            (request, Asked::Index(asked))
        }
        Route::Query(place) => (query::request(place.bucket, &body)?, Asked::Query),
        Route::Fold(path) => (fold::request(path, query)?, Asked::Fold),
        Route::Props(place) => {
            let (request, asked) = props::of_bucket(place.bucket, head.method, &body)?;
            (request, Asked::Props(asked))
        }
        Route::TypeProps(name) => {
            let (request, asked) = props::of_type(name, head.method, &body)?;
            (request, Asked::Props(asked))
        }
        Route::Root
        | Route::Ping
        | Route::Ready
        | Route::Live
        | Route::Stats
        | Route::Metrics
        | Route::Admin(_)
        | Route::Unbuilt(_)
        | Route::WrongTerms(_) => unreachable!("answered above"),
    }))
}

/// Whether an answer comes in pieces, or after a long time.
fn lasts(route: &Route) -> bool {
    matches!(route, Route::Keys(_) | Route::Buckets(_) | Route::Index(..) | Route::Query(_) | Route::Fold(_))
}

/// The route of a path that is built.
fn built_route(path: &Bytes) -> Result<Route, Fault> {
    match route(path)?.ok_or(Fault::new(404, "not found"))? {
        Route::Unbuilt(feature) => Err(Fault::new(501, feature.sentence())),
        Route::WrongTerms(what) => Err(Fault::bad(format!("Invalid query: {what}"))),
        route => Ok(route),
    }
}
