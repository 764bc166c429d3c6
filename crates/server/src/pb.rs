//! Connections of Riak's protocol buffers.
//!
//! One task each: read, take frames off the input, ask the shard, write. Answers that are ready are written
//! together before the next read. A connection whose client neither sends nor takes anything for the idle time
//! is closed, and so is one that trickles a frame ([`crate::pace`]).
//!
//! A client may go on under TLS, and log in. Before each message the connection takes the policy in force; a listing
//! that it does not allow any more ends with its next piece.

use crate::connections::{Connections, Held, Patience, Read};
use crate::connects::Connected;
use crate::input::Input;
use crate::local::Local;
use crate::pace::{Pace, Sending};
use crate::security::{AdmittedRequest, DoorGuard, Verdict};
use crate::stream::Stream;
use crate::unsent::Unsent;
use base::Monotonic;
use base::budget::LARGE_BYTES;
use bytes::Buf;
use node::riak::{Identity, Incoming, Session};
use protocol::messages::AuthReq;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// A client that says nothing for so long is idle, and its connection gives back what large requests were read into.
/// One that works pays nothing for it.
const REST_AFTER: Duration = Duration::from_secs(1);

/// Answers to pipelined requests are held back up to this many bytes, so that they leave in one packet run.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What a client may go on sending after its connection was ended: the frame that was refused, and some.
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// How long it may go on. A connection that was refused is not one that is idle.
const HANG_UP_MAX: Duration = Duration::from_secs(15);

/// How much of that is read at a time.
const DISCARD_STEP_BYTES: usize = 16 << 10;

/// How long a client may take nothing of a large answer: it holds memory that others wait for.
const TAKE_MAX: Duration = Duration::from_secs(60);

/// An output buffer that grew past this for one large answer is given back, for ten thousand connections keep one each.
const OUTPUT_BYTES_KEPT: usize = 8 << 10;

/// Serves one connection until it ends.
pub async fn serve(
    mut stream: Stream,
    local: Rc<Local>,
    (identity, guard): (Arc<Identity>, Arc<DoorGuard>),
    about: Rc<Connections>,
    patience: Patience,
    id: u64,
    _connected: Connected,
) {
    // Whatever ends a connection ends only that connection; what it had asked for is dropped with it.
    let ended = converse(&mut stream, &local, (identity, &guard), &about, &patience).await;
    if let Err(error) = ended {
        tracing::debug!(connection = id, %error, "connection ended");
    }
    about.remove(id);
}

async fn converse(
    stream: &mut Stream,
    local: &Local,
    (identity, guard): (Arc<Identity>, &DoorGuard),
    about: &Rc<Connections>,
    patience: &Patience,
) -> io::Result<()> {
    stream.set_nodelay()?;
    let mut session = Session::new(identity);
    session.bound(about.request_max());
    session.offer_tls(guard.has_tls());
    let mut unsent = Unsent::default();
    let mut held = Held::new(about);
    let mut input = Input::new();
    let mut out = Vec::new();
    let mut pace = Pace::new(patience.now() + patience.idle_timeout());
    let mut got = 0;
    let mut goes_with_others = false;
    loop {
        guard.verify_again(stream)?;
        // Nothing is under way that a newer policy could end.
        guard.renew(session.access_mut()).ok();
        match session.receive(&mut input.bytes, &mut out) {
            Incoming::Wait => {
                if !out.is_empty() {
                    // Others that have input go first, and answers leave together: a client thread that serves many
                    // connections is then woken once for all of them, as with Redis. What a turn has brought does so
                    // anyway, and has waited; and a refusal is to cost little.
                    if !std::mem::take(&mut goes_with_others) {
                        tokio::task::yield_now().await;
                    }
                    send(stream, &mut out, patience).await?;
                    unsent.end();
                }
                let arriving = session.wants_memory(&input.bytes);
                if arriving >= LARGE_BYTES {
                    held.set(0);
                    match about.budgets().requests.reserve(arriving) {
                        Some(memory) => session.hold(memory),
                        None => {
                            protocol::response::error(&mut out, protocol::errors::OVERLOAD);
                            send(stream, &mut out, patience).await?;
                            match skip(stream, &mut input, arriving, (&mut pace, patience)).await? {
                                true => continue,
                                false => return Ok(()),
                            }
                        }
                    }
                } else if !held.set(if arriving == 0 { 0 } else { input.bytes.len() }) {
                    protocol::response::error(&mut out, protocol::errors::OVERLOAD);
                    send(stream, &mut out, patience).await?;
                    return hang_up(stream, patience).await;
                }
                let sending = if input.bytes.is_empty() { Sending::Nothing } else { Sending::Body };
                let until = pace.until(sending, got, patience.now(), patience.idle_timeout());
                let read = match sending == Sending::Nothing && about.stopping() {
                    true => about.read_in_stop(stream, &mut input.bytes).await?,
                    false => read(stream, &mut input, until, patience).await?,
                };
                match read {
                    Read::Stopping => got = 0,
                    Read::Bytes(0) | Read::TimedOut => return Ok(()),
                    Read::Bytes(read) => got = read,
                }
            }
            Incoming::Answered => {}
            Incoming::StartTls => {
                send(stream, &mut out, patience).await?;
                guard.secure(stream, &mut input.bytes, patience).await?;
                session.on_secure();
            }
            Incoming::Login(login) => log_in(stream, &mut session, &login, guard, &mut out).await?,
            Incoming::Close => {
                guard.note_refusals(session.access_mut(), stream);
                send(stream, &mut out, patience).await?;
                return hang_up(stream, patience).await;
            }
            Incoming::Request(request) => {
                input.part();
                match guard.usage().admit(session.access(), &request) {
                    Ok(admitted) => {
                        let sink = Sink { stream, out: &mut out, unsent: &mut unsent, about, patience };
                        goes_with_others =
                            serve_request((request, admitted), &mut session, (local, guard), sink).await?;
                    }
                    Err(_) => protocol::response::error(&mut out, protocol::errors::RATE_LIMITED),
                }
            }
        }
        guard.note_refusals(session.access_mut(), stream);
        if out.len() >= OUTPUT_BYTES_MAX {
            send(stream, &mut out, patience).await?;
            unsent.end();
        }
    }
}

/// The end of a connection that answers go to.
pub(crate) struct Sink<'a> {
    pub(crate) stream: &'a mut Stream,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) unsent: &'a mut Unsent,
    pub(crate) about: &'a Connections,
    pub(crate) patience: &'a Patience,
}

/// Has the node execute a request, and answers it; whether others that have input go first.
async fn serve_request(
    (request, admitted): (kv::Request, Option<AdmittedRequest>),
    session: &mut Session,
    (local, guard): (&Local, &DoorGuard),
    sink: Sink<'_>,
) -> io::Result<bool> {
    let Sink { stream, out, unsent, about, patience } = sink;
    let mut answers = local.ask(request);
    loop {
        let (mut result, more) = answers.next().await;
        guard.verify_again(stream)?;
        if let Err(denied) = guard.renew(session.access_mut()) {
            session.deny(&denied, out);
            return Ok(false);
        }
        let goes_on = unsent.begin(&mut result, &about.budgets().answers) && more;
        let is_refused = matches!(result, Err(kv::Error::Overload));
        let goes_with_others = is_refused || answers.came_by_turn();
        let before = out.len();
        session.respond(result, out);
        guard.usage().charge(session.access(), admitted.as_ref(), out.len() - before);
        if !goes_on {
            return Ok(goes_with_others);
        }
        send(stream, out, patience).await?;
        unsent.end();
        answers.proceed();
    }
}

/// Verifies a login, and answers it.
async fn log_in(
    stream: &Stream,
    session: &mut Session,
    login: &AuthReq,
    guard: &DoorGuard,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let proof = (&login.user[..], Some(&login.password[..]));
    let from = (stream, stream.peer_addr()?.ip());
    match guard.log_in(session.access(), proof, from).await? {
        Verdict::Accepted => session.on_login(Some(&login.user), out),
        Verdict::Refused => session.on_login(None, out),
        Verdict::Busy => protocol::response::error(out, protocol::errors::OVERLOAD),
    }
    Ok(())
}

/// Reads and drops the next `left` bytes, those in `input` first: a request that was refused. Whether the connection
/// goes on.
pub async fn skip(
    stream: &mut Stream,
    input: &mut Input,
    mut left: usize,
    (pace, patience): (&mut Pace, &Patience),
) -> io::Result<bool> {
    let mut got = 0;
    loop {
        let skipped = left.min(input.bytes.len());
        left -= skipped;
        input.bytes.advance(skipped);
        input.part();
        if left == 0 {
            return Ok(true);
        }
        input.bytes.reserve(DISCARD_STEP_BYTES);
        let until = pace.until(Sending::Body, got, patience.now(), patience.idle_timeout());
        match patience.read(stream, &mut input.bytes, until).await? {
            Read::Stopping => got = 0,
            Read::Bytes(0) | Read::TimedOut => return Ok(false),
            Read::Bytes(read) => {
                input.count(read);
                got = read;
            }
        }
    }
}

/// Reads what is there, waiting for some until then. Who waits long does so with little memory.
async fn read(
    stream: &mut Stream,
    input: &mut Input,
    until: Monotonic,
    patience: &Patience,
) -> io::Result<Read> {
    let rest = patience.now() + REST_AFTER;
    let mut read = Read::TimedOut;
    if input.is_worn() && rest < until {
        read = patience.read(stream, &mut input.bytes, rest).await?;
        if read == Read::TimedOut {
            patience.renew();
            input.renew();
        }
    }
    if read == Read::TimedOut {
        read = patience.read(stream, &mut input.bytes, until).await?;
    }
    if let Read::Bytes(bytes) = read {
        input.count(bytes);
    }
    Ok(read)
}

/// Ends the connection from our side and lets the client finish what it is sending: a socket that is dropped with
/// unread input resets the connection, and the client would never see why.
pub async fn hang_up(stream: &mut Stream, patience: &Patience) -> io::Result<()> {
    stream.shutdown().await?;
    patience.begin_until(patience.now() + HANG_UP_MAX);
    let mut discarded = vec![0; DISCARD_STEP_BYTES];
    let mut left = DISCARD_BYTES_MAX;
    while left > 0 {
        match stream.discard(&mut discarded).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

/// Sends all of `out`, and empties it.
pub async fn send(stream: &mut Stream, out: &mut Vec<u8>, patience: &Patience) -> io::Result<()> {
    if out.len() < LARGE_BYTES {
        patience.begin();
        stream.write_all(out).await?;
    } else {
        let mut sent = 0;
        while sent < out.len() {
            patience.begin_until(patience.now() + patience.idle_timeout().min(TAKE_MAX));
            match stream.write(&out[sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                some => sent += some,
            }
        }
    }
    patience.end();
    out.clear();
    if out.capacity() > OUTPUT_BYTES_KEPT {
        out.shrink_to(OUTPUT_BYTES_KEPT);
    }
    Ok(())
}

/// Tells the client why, if that fits into the socket's buffer, and closes.
pub fn refuse(stream: &TcpStream, limit: usize) {
    let mut out = Vec::new();
    protocol::response::error(&mut out, &format!("too many connections: the limit is {limit}"));
    if stream.try_write(&out).is_err() {
        tracing::debug!("a refused client does not listen");
    }
}
