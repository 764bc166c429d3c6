//! Connections of Riak's HTTP: as those of its protocol buffers ([`crate::pb`]), and stricter with slow clients.
//!
//! A client has [`FIRST_MAX`] for its first byte, [`pace::HEAD_MAX`](crate::pace::HEAD_MAX) for a head, a least rate
//! for a body, and is told 408 when it fails; between two requests it may be idle as long as any other.
//!
//! The door of HTTPS is the same under TLS. With security each request logs in, before its body is read. The local
//! socket is the same again, without a login.
//!
//! Questions about the whole node are answered by `wide.rs`.

mod wide;

pub use wide::{HttpDoor, Wide};

use crate::audit;
use crate::connections::{Connections, Held, Patience, Read};
use crate::health;
use crate::input::Input;
use crate::local::Local;
use crate::membership::Answered;
use crate::pace::{Pace, Sending};
use crate::pb::{Sink, hang_up, send, skip};
use crate::security::{
    AdmittedRequest, DoorGuard, Verdict, answer as answer_security, certified_name, whoami,
};
use crate::socket::ClientOrigin;
use crate::stream::Stream;
use crate::unsent::Unsent;
use base::budget::LARGE_BYTES;
use node::http::{Claim, ClusterPage, Incoming, Question, Session};
use protocol::http::Waits;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a client may take from connecting to its first byte: who opens a connection has something to say.
const FIRST_MAX: Duration = Duration::from_secs(10);

/// Answers to pipelined requests are held back up to this many bytes, so that they leave in one packet run.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Serves one connection until it ends.
pub async fn serve(
    mut stream: Stream,
    local: Rc<Local>,
    wide: Wide,
    about: Rc<Connections>,
    patience: Patience,
    id: u64,
) {
    let ended = converse(&mut stream, &local, &wide, &about, &patience).await;
    if let Err(error) = ended {
        tracing::debug!(connection = id, %error, "connection ended");
    }
    about.remove(id);
}

async fn converse(
    stream: &mut Stream,
    local: &Rc<Local>,
    wide: &Wide,
    about: &Rc<Connections>,
    patience: &Patience,
) -> io::Result<()> {
    stream.set_nodelay()?;
    let from = stream.origin();
    let local_address = stream.local_addr().ok().map(|address| address.ip());
    let mut session = match wide.door {
        HttpDoor::Http | HttpDoor::Https => Session::guarded(Arc::clone(&wide.hosts), local_address),
        HttpDoor::Local => Session::local(),
    };
    session.bound(about.request_max());
    let mut unsent = Unsent::default();
    let mut held = Held::new(about);
    let mut input = Input::new();
    let mut out = Vec::new();
    if wide.door == HttpDoor::Https {
        wide.guard.secure(stream, &mut input.bytes, patience).await?;
        session.secure(stream.tls().and_then(certified_name));
    }
    let mut pace = Pace::new(patience.now() + FIRST_MAX);
    let (mut got, mut is_first) = (0, true);
    let mut goes_with_others = false;
    loop {
        session.leaving(wide.membership.is_leaving());
        session.stopping(about.stopping());
        wide.guard.verify_again(stream)?;
        // Nothing is under way that a newer policy could end.
        wide.guard.renew(session.access_mut()).ok();
        let answered = out.len();
        match session.receive(patience.seconds(), &mut input.bytes, &mut out) {
            Incoming::Wait(waits) => {
                if !out.is_empty() {
                    // As for protocol buffers: others that have input go first, and answers leave together.
                    if !std::mem::take(&mut goes_with_others) {
                        tokio::task::yield_now().await;
                    }
                    send(stream, &mut out, patience).await?;
                    unsent.end();
                }
                if waits == Waits::Request && input.is_worn() {
                    input.renew();
                }
                let holds = if waits == Waits::Body { input.bytes.len() + session.held() } else { 0 };
                let has_memory = session.holds_memory(input.bytes.len(), |bytes| {
                    held.set(0);
                    about.budgets().requests.reserve(bytes)
                });
                if !has_memory || !held.set(if holds < LARGE_BYTES { holds } else { 0 }) {
                    let left = session.give_up(patience.seconds(), &mut out);
                    if left > 0 {
                        // Clients that send all before they read are to read it nevertheless.
                        send(stream, &mut out, patience).await?;
                        if !skip(stream, &mut input, left, (&mut pace, patience)).await? {
                            return Ok(());
                        }
                    }
                    continue;
                }
                let sending = match waits {
                    // A connection that has asked nothing yet is as one in the middle of a head.
                    Waits::Request if !is_first => Sending::Nothing,
                    Waits::Request | Waits::Head => Sending::Head,
                    Waits::Body => Sending::Body,
                };
                let until = pace.until(sending, got, patience.now(), patience.idle_timeout());
                let is_last = waits == Waits::Request && about.stopping();
                let read = match is_last {
                    true => about.read_in_stop(stream, &mut input.bytes).await?,
                    false => patience.read(stream, &mut input.bytes, until).await?,
                };
                match read {
                    Read::Stopping => got = 0,
                    Read::Bytes(0) => return Ok(()),
                    Read::Bytes(read) => {
                        input.count(read);
                        got = read;
                    }
                    // An idle connection is closed in silence, as its client expects.
                    Read::TimedOut if sending == Sending::Nothing || is_last => return Ok(()),
                    Read::TimedOut => {
                        session.time_out(patience.seconds(), &mut out);
                        send(stream, &mut out, patience).await?;
                        return hang_up(stream, patience).await;
                    }
                }
                continue;
            }
            Incoming::Answered => {}
            Incoming::Login(claim) => {
                log_in(stream, &mut session, &claim, (&wide.guard, patience), &mut out).await?;
                continue;
            }
            Incoming::Close => {
                wide.guard.note_refusals(session.access_mut(), stream);
                note_change(&mut session, from, out.get(answered..));
                send(stream, &mut out, patience).await?;
                return hang_up(stream, patience).await;
            }
            Incoming::Question(Question::Purge(page)) => {
                tell(&wide.purges.ask(page, local, about), &mut session, &mut out);
            }
            Incoming::Question(Question::Ready) => {
                wide.drain.note_asked(Instant::now());
                let mut state = wide.state();
                state.is_stopping |= about.stopping();
                tell(&health::ready(&state), &mut session, &mut out);
            }
            Incoming::Question(Question::Live) => {
                tell(&health::live(), &mut session, &mut out);
            }
            Incoming::Question(Question::Security(body)) => {
                // It is noted with its words, if it is a change.
                session.take_change();
                let asked = (&wide.membership, &wide.hashing);
                let answered = answer_security(&body, asked, (&wide.guard, wide.peers.as_ref()), from).await;
                tell(&answered, &mut session, &mut out);
            }
            Incoming::Question(Question::Whoami) => {
                tell(&whoami(session.access(), from), &mut session, &mut out);
            }
            Incoming::Question(question) => {
                if let Question::Cluster(ClusterPage::Plan | ClusterPage::Stage, _) = &question {
                    local.note_n_val_max();
                }
                wide.answer(question, &mut session, &mut out).await;
            }
            Incoming::Request(request) => {
                if let Some(refused) = wide.refuses_activation(&request, local).await {
                    tell(&refused, &mut session, &mut out);
                    note_change(&mut session, from, out.get(answered..));
                    is_first = false;
                    continue;
                }
                input.part();
                match wide.guard.usage().admit(session.access(), &request) {
                    Ok(admitted) => {
                        let sink = Sink { stream, out: &mut out, unsent: &mut unsent, about, patience };
                        let node = (&**local, &*wide.guard);
                        goes_with_others =
                            serve_request((request, admitted), &mut session, node, sink).await?;
                    }
                    Err(limited) => session.limit(limited.wait, &mut out),
                }
            }
        }
        is_first = false;
        note_change(&mut session, from, out.get(answered..));
        wide.guard.note_refusals(session.access_mut(), stream);
        if out.len() >= OUTPUT_BYTES_MAX {
            send(stream, &mut out, patience).await?;
            unsent.end();
        }
    }
}

/// Verifies the login of a request.
async fn log_in(
    stream: &Stream,
    session: &mut Session,
    claim: &Claim,
    (guard, patience): (&DoorGuard, &Patience),
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let proof = (&claim.user[..], claim.password.as_deref().map(Vec::as_slice));
    let from = (stream, source_address(stream, claim)?);
    match guard.log_in(session.access(), proof, from).await? {
        Verdict::Accepted => session.on_login(Some(&claim.user), patience.seconds(), out),
        Verdict::Refused => session.on_login(None, patience.seconds(), out),
        Verdict::Busy => session.refuse_for_now(patience.seconds(), out),
    }
    Ok(())
}

/// The address of a login: that of the connection.
#[cfg_attr(
    not(feature = "planted"),
    expect(unused_variables, reason = "headers decide under a planted bug alone")
)]
fn source_address(stream: &Stream, claim: &Claim) -> io::Result<IpAddr> {
    #[cfg(feature = "planted")]
    if base::planted!(ForwardedForBelieved)
        && let Some(address) = claim.forwarded_for
    {
        return Ok(address);
    }
    Ok(stream.peer_addr()?.ip())
}

/// Notes the change that a request asked for, once it is answered.
fn note_change(session: &mut Session, from: ClientOrigin, answer: Option<&[u8]>) {
    if let Some(status) = answer.and_then(audit::status_of)
        && let Some(change) = session.take_change()
    {
        audit::note(&change, from, status);
    }
}

/// Answers it; whether the answer came together with those of other connections.
async fn serve_request(
    (request, admitted): (kv::Request, Option<AdmittedRequest>),
    session: &mut Session,
    (local, guard): (&Local, &DoorGuard),
    sink: Sink<'_>,
) -> io::Result<bool> {
    let Sink { stream, out, unsent, about, patience } = sink;
    let mut answers = local.ask(request);
    let mut has_begun = false;
    loop {
        let (mut result, more) = answers.next().await;
        guard.verify_again(stream)?;
        if let Err(denied) = guard.renew(session.access_mut()) {
            if has_begun {
                // Without its end, an answer is not taken for a whole one.
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, denied.to_string()));
            }
            session.deny(denied, out);
            return Ok(answers.came_by_turn());
        }
        let goes_on = unsent.begin(&mut result, &about.budgets().answers) && more;
        let before = out.len();
        let next = session.respond(result, out);
        guard.usage().charge(session.access(), admitted.as_ref(), out.len() - before);
        if let Some(request) = next {
            answers = local.ask(request);
            continue;
        }
        if !goes_on {
            return Ok(answers.came_by_turn());
        }
        has_begun = true;
        send(stream, out, patience).await?;
        unsent.end();
        answers.proceed();
    }
}

fn tell(answered: &Answered, session: &mut Session, out: &mut Vec<u8>) {
    session.answer(answered.status, "application/json", answered.body.to_string().as_bytes(), out);
}

/// Tells the client why, if that fits into the socket's buffer, and closes.
pub fn refuse(stream: &TcpStream, seconds: u64, limit: usize) {
    let mut out = Vec::new();
    Session::new().turn_away(seconds, limit, &mut out);
    if stream.try_write(&out).is_err() {
        tracing::debug!("a refused client does not listen");
    }
}
