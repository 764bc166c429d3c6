//! The way to a member: its addresses are tried one after the other, until it welcomes this node.
//!
//! 1. A name is resolved, each time anew.
//! 2. Both sides prove who they are by TLS, and this node introduces itself.
//! 3. The member welcomes it, or says why not: what that means for this node goes to its membership.
//!
//! Invariant: each try has a deadline.
//!
//! Left out: when it is tried again (`link.rs`), and what a start makes of a failure (`gate.rs`).

use super::channel::{Channel, HANDSHAKE_READ_BYTES};
use super::{HANDSHAKE_MAX, Peers, prepare};
use crate::membership::{AsOf, CopyRefusal};
use bytes::BytesMut;
use os::Address;
use protocol::peer::Reply;
use ring::NodeId;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why a member was not reached, or did not welcome this node.
pub(super) struct Failure {
    /// For the log.
    pub(super) text: String,
    /// Whether it says that this node's data folder is a copy.
    pub(super) is_copy: bool,
}

impl Failure {
    fn new(text: impl ToString) -> Failure {
        Failure { text: text.to_string(), is_copy: false }
    }
}

/// A connection that a member has welcomed, and the version in which frames are written to it. To be reached at all it
/// has `reach_max`.
pub(super) async fn dial(
    node: NodeId,
    name: &str,
    peers: &Peers,
    reach_max: Duration,
) -> Result<(Channel, u16), Failure> {
    let (mut texts, mut is_copy) = (Vec::new(), false);
    for address in peers.addresses(node) {
        let numbers = match look_up(&address, node, peers, reach_max).await {
            Ok(numbers) => numbers,
            Err(why) => {
                texts.push(format!("{address}: the name is not resolved{why}"));
                continue;
            }
        };
        let mut of_address = Vec::with_capacity(numbers.len());
        for number in numbers {
            let introduced = introduce(number, (node, name), peers, reach_max);
            let failure = match timeout(HANDSHAKE_MAX, introduced).await {
                Ok(Ok(connected)) => {
                    peers.gate.decided(node);
                    return Ok(connected);
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::new(format_args!("no answer in {} s", HANDSHAKE_MAX.as_secs())),
            };
            is_copy |= failure.is_copy;
            of_address.push(match address.name() {
                Some(_) => format!("{address} ({}): {}", number.ip(), failure.text),
                None => format!("{address}: {}", failure.text),
            });
        }
        // The resolver may give the numbers of a name in another order each time, and the log says a thing once.
        of_address.sort();
        texts.extend(of_address);
    }
    if is_copy {
        peers.gate.refused(node);
    }
    if texts.is_empty() {
        return Err(Failure::new("it has not sent its address"));
    }
    Err(Failure { text: texts.join("; "), is_copy })
}

/// The numbers of a member's address. A name is resolved again each time: the machine behind it may have changed.
async fn look_up(
    address: &Address,
    node: NodeId,
    peers: &Peers,
    reach_max: Duration,
) -> Result<Vec<SocketAddr>, String> {
    let late = |_| format!(" in {} ms", reach_max.as_millis());
    let resolved = timeout(reach_max, peers.resolver.resolve(address)).await.map_err(late)?;
    let numbers = resolved.map_err(|why| format!(": {why}"))?;
    if address.name().is_some() {
        peers.note_numbers(node, &numbers);
    }
    Ok(numbers)
}

async fn introduce(
    number: SocketAddr,
    (node, name): (NodeId, &str),
    peers: &Peers,
    reach_max: Duration,
) -> Result<(Channel, u16), Failure> {
    let failed = |error: io::Error| Failure::new(error);
    let late = |_| Failure::new(format_args!("not reached in {} ms", reach_max.as_millis()));
    let tcp = timeout(reach_max, TcpStream::connect(number)).await.map_err(late)?.map_err(failed)?;
    peers.gate.connected(node);
    prepare(&tcp).map_err(failed)?;
    let tls = peers.tls.open(name).map_err(Failure::new)?;
    let mut channel = Channel::new(tcp, tls);
    let mut input = BytesMut::new();
    channel.handshake(&mut input).await.map_err(failed)?;
    let mut out = BytesMut::new();
    peers.hello.encode(&mut out);
    channel.write(&[IoSlice::new(&out)]).await.map_err(failed)?;
    let mut scratch = [0; HANDSHAKE_READ_BYTES];
    loop {
        match Reply::read(&mut input).map_err(Failure::new)? {
            Some(Reply::Welcome { version }) => {
                peers.note_version(node, version);
                return Ok((channel, version));
            }
            Some(Reply::Refused { text }) => return Err(Failure::new(format_args!("refused: {text}"))),
            Some(Reply::NotMember { epoch, commit }) => {
                peers.membership.not_member(AsOf { epoch, commit });
                let text = format!("refused: this node is no member (as of entry {commit})");
                return Err(Failure::new(text));
            }
            Some(Reply::Copy { original, epoch, commit, is_registered }) => {
                let as_of = AsOf { epoch, commit };
                peers.membership.refused_as_copy(CopyRefusal { as_of, is_other_registered: is_registered });
                let text = format!(
                    "refused: this data folder is a copy, and its original is alive (process {original:016x})"
                );
                return Err(Failure { text, is_copy: true });
            }
            None if channel.read(&mut input, &mut scratch).await.map_err(failed)? => {}
            None => return Err(Failure::new("the connection was closed before an answer")),
        }
    }
}
