//! One client's connection: bytes in, requests out; responses in, bytes out.
//!
//! 1. [`Session::receive`] takes a request off the input. It answers itself if no data is concerned: ping, the list of
//!    resources, faults. All else is a request for the node, or a question about it.
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

use super::admin::{self, Page};
use super::answer_form::{AnswerForm, Responded, request_of};
use super::change::Change;
use super::fault::Fault;
use super::guard::Guard;
use super::hosts::HostNames;
use super::listing;
use super::login::{self, Claim};
use super::needs::needs;
use super::question::Question;
use super::root;
use super::route::{Route, built_route};

/// Leave to send a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The outcome of a step of the connection.
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

/// The rest of a request whose login is being verified.
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
    answer_form: AnswerForm,
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
            answer_form: AnswerForm::Nothing,
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

    /// Takes the node's answer to the request that [`Session::receive`] gave out last. The request that it returns is
    /// to be asked next; its answer comes here too.
    pub fn respond(&mut self, result: Result<Response, Error>, out: &mut Vec<u8>) -> Option<kv::Request> {
        match self.answer_form.respond(result, self.connection, out) {
            Responded::Whole => None,
            Responded::Broken => {
                self.closing = true;
                None
            }
            Responded::Asks(request) => Some(request),
        }
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
        self.answer_form = AnswerForm::Nothing;
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
        let methods = route.methods();
        if !methods.contains(&head.method) {
            not_allowed(methods, Answer::new(out, self.connection, 405));
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

        let Some((request, form)) = request_of(route, head, &query, body, self.connection)? else {
            listing::nothing(self.connection, out);
            return Ok(Incoming::Answered);
        };
        self.answer_form = form;
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
            true => self.access.begin(needs(route, method, query), route.lasts()),
        }
    }

    fn on_admin(
        &mut self,
        page: &Page,
        method: Method,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Incoming, Fault> {
        if let Some((request, asked)) = admin::request(page, method, body)? {
            self.answer_form = AnswerForm::Admin(asked);
            return Ok(Incoming::Request(request));
        }
        if let Some(question) = Question::of_page(page, method, body)? {
            return Ok(Incoming::Question(question));
        }
        self.answer(200, "application/yaml", admin::OPENAPI.as_bytes(), out);
        Ok(Incoming::Answered)
    }
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

/// Answers a method that a route does not take.
fn not_allowed(methods: &[Method], mut answer: Answer<'_>) {
    let names = methods.iter().map(|method| match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Put => "PUT",
        Method::Post => "POST",
        Method::Delete => "DELETE",
        Method::NotAllowed | Method::Unknown => unreachable!("nowhere allowed"),
    });
    answer.header("Allow", names.collect::<Vec<_>>().join(", "));
    answer.body(b"");
}
