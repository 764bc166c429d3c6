//! A newcomer's side of its admission: it asks a member, of which it knows the address, and is told which node it is.
//!
//! A member that cannot be reached is tried again, for it may be starting; a refusal is final, since whoever refuses
//! has asked the cluster.

use super::channel::{Channel, READ_BYTES};
use super::resolver::Resolver;
use super::tls::Tls;
use super::{HANDSHAKE_MAX, prepare};
use crate::membership::{ADMISSION_MAX, STANDING_BYTES_MAX, Standing};
use bytes::BytesMut;
use os::Address;
use protocol::peer::{ADMISSION, Join, Reply, next_frame};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// How long to try while no member can be reached.
const REACH_MAX: Duration = Duration::from_secs(30);

/// How long to wait between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long an answer may take: the cluster's decision, and a large state on a slow network.
const ANSWER_MAX: Duration = Duration::from_secs(2 * ADMISSION_MAX.as_secs());

/// Why a member did not admit.
enum Failure {
    /// It, or another one, may another time.
    Unreached(String),
    /// It is for a person to mend.
    Refused(String),
}

/// Asks the members at `contacts` for a place until one decides; says why there is none. Blocks.
pub(crate) fn ask_to_join(contacts: &[Address], join: &Join, tls: &Tls) -> Result<Standing, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    let resolver = Resolver::of_system();
    runtime.block_on(async {
        let until = Instant::now() + REACH_MAX;
        loop {
            let mut why = String::new();
            for contact in contacts {
                match ask(contact, join, tls, &resolver).await {
                    Ok(standing) => return Ok(standing),
                    Err(Failure::Refused(text)) => {
                        return Err(format!("the member at {contact} refuses: {text}"));
                    }
                    Err(Failure::Unreached(text)) => {
                        tracing::info!(%contact, "the join request failed: {text}; trying again");
                        why = format!(
                            "no member was reached in {} s; {contact}: {text}: check the addresses of the option join",
                            REACH_MAX.as_secs()
                        );
                    }
                }
            }
            if Instant::now() >= until {
                return Err(why);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    })
}

/// Asks a member, at each address of its name until one is reached.
async fn ask(contact: &Address, join: &Join, tls: &Tls, resolver: &Resolver) -> Result<Standing, Failure> {
    let late = |_| Failure::Unreached(format!("the name is not resolved in {} s", HANDSHAKE_MAX.as_secs()));
    let resolved = timeout(HANDSHAKE_MAX, resolver.resolve(contact)).await.map_err(late)?;
    let numbers = resolved.map_err(|why| Failure::Unreached(format!("the name is not resolved: {why}")))?;
    let mut texts = Vec::new();
    for number in numbers {
        match ask_at(number, join, tls).await {
            Err(Failure::Unreached(text)) if contact.name().is_some() => {
                texts.push(format!("{}: {text}", number.ip()));
            }
            Err(Failure::Unreached(text)) => texts.push(text),
            decided => return decided,
        }
    }
    Err(Failure::Unreached(texts.join("; ")))
}

async fn ask_at(number: SocketAddr, join: &Join, tls: &Tls) -> Result<Standing, Failure> {
    let late = |_| Failure::Unreached("no answer in time".to_owned());
    let mut input = BytesMut::new();
    let mut channel =
        timeout(HANDSHAKE_MAX, introduce(number, join, tls, &mut input)).await.map_err(late)??;
    timeout(ANSWER_MAX, answer(&mut channel, &mut input)).await.map_err(late)?
}

async fn introduce(
    number: SocketAddr,
    join: &Join,
    tls: &Tls,
    input: &mut BytesMut,
) -> Result<Channel, Failure> {
    let unreached = |error: io::Error| Failure::Unreached(error.to_string());
    let tcp = TcpStream::connect(number).await.map_err(unreached)?;
    prepare(&tcp).map_err(unreached)?;
    let tls = tls.open_to_any().map_err(|error| Failure::Refused(error.to_string()))?;
    let mut channel = Channel::new(tcp, tls);
    channel.handshake(input).await.map_err(|error| match error.kind() {
        // What TLS has to say of a certificate will be the same next time.
        io::ErrorKind::InvalidData => Failure::Refused(error.to_string()),
        _ => Failure::Unreached(error.to_string()),
    })?;
    let mut out = BytesMut::new();
    join.encode(&mut out);
    channel.write(&[IoSlice::new(&out)]).await.map_err(unreached)?;
    Ok(channel)
}

async fn answer(channel: &mut Channel, input: &mut BytesMut) -> Result<Standing, Failure> {
    let senseless = |what: String| Failure::Refused(format!("invalid answer: {what}"));
    let mut scratch = vec![0; READ_BYTES];
    let mut is_welcome = false;
    loop {
        if !is_welcome {
            match Reply::read(input).map_err(|error| senseless(error.to_string()))? {
                Some(Reply::Welcome { .. }) => is_welcome = true,
                Some(Reply::Refused { text }) => return Err(Failure::Refused(text)),
                Some(Reply::NotMember { .. } | Reply::Copy { .. }) => {
                    return Err(senseless("a newcomer is no member".to_owned()));
                }
                None => {}
            }
        }
        if is_welcome
            && let Some(frame) =
                next_frame(input, STANDING_BYTES_MAX).map_err(|error| senseless(error.to_string()))?
        {
            return match frame.kind {
                ADMISSION => Standing::decode(&frame.body).map_err(|error| senseless(error.to_string())),
                kind => Err(senseless(format!("a frame of kind {kind}"))),
            };
        }
        match channel.read(input, &mut scratch).await {
            Ok(true) => {}
            Ok(false) if is_welcome => return Err(Failure::Unreached("it ended in the middle".to_owned())),
            Ok(false) => {
                let text = "the connection was closed without an answer: the address must be the peer_listen of a node";
                return Err(Failure::Unreached(text.to_owned()));
            }
            // As with the handshake: the other end says by TLS what it thinks of our certificate.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Failure::Refused(error.to_string()));
            }
            Err(error) => return Err(Failure::Unreached(error.to_string())),
        }
    }
}
