//! Members that are reached by a name: each of its addresses is tried, and it is looked up again for each connection.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::dial::dial;
use super::resolver::Resolver;
use super::rest_tests::{THERE, There};
use super::tests::{state, test_tls};
use super::{HANDSHAKE_MAX, Peers, Roster};
use crate::membership::{self, AsOf};
use ::membership::ClusterId;
use ::membership::log::Identity;
use ring::NodeId;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// Node 1 of two, the other of which is at a port of `a-name`, and the addresses of that name.
fn named(port: u16) -> (Arc<Peers>, Arc<Mutex<Vec<SocketAddr>>>) {
    let two = state(&[("a@h", &format!("a-name:{port}")), ("b@h", "127.0.0.1:1")]);
    let address = "127.0.0.1:1".to_owned();
    let here = Identity { cluster: ClusterId(1), node: NodeId(1), starts: 1, start: 7, address };
    let roster = Roster::of(NodeId(1), &two, AsOf::default()).unwrap();
    let addresses: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let known = Arc::clone(&addresses);
    let resolver = Resolver::new(move |address| {
        assert_eq!((address.name(), address.port()), (Some("a-name"), port));
        let found = known.lock().unwrap().clone();
        if found.is_empty() { Err(io::Error::other("unknown")) } else { Ok(found) }
    });
    let peers = Peers::new(test_tls("a@h"), &here, roster, Vec::new(), membership::queue(1).0);
    (Arc::new(peers.with_resolver(resolver)), addresses)
}

async fn failure(peers: &Peers) -> String {
    let dialled = dial(THERE, "a@h", peers, HANDSHAKE_MAX).await;
    dialled.err().unwrap().text
}

async fn reach(peers: &Peers) {
    let dialled = dial(THERE, "a@h", peers, HANDSHAKE_MAX).await;
    assert!(dialled.is_ok(), "{}", dialled.err().unwrap().text);
}

#[tokio::test(flavor = "current_thread")]
async fn each_address_of_a_name_is_tried_and_looked_up_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = listener.local_addr().unwrap();
    let port = member.port();
    let at = |host: u8| SocketAddr::from(([127, 0, 0, host], port));
    let (peers, addresses) = named(port);
    let there = There { listener, peers: Arc::clone(&peers) };

    // The machine has not started: its name is unknown.
    assert_eq!(failure(&peers).await, format!("a-name:{port}: the name is not resolved: unknown"));

    // It starts, at the last of three addresses: at the first nobody listens, at the second a stranger does.
    let stranger = TcpListener::bind(at(2)).await.unwrap();
    *addresses.lock().unwrap() = vec![at(3), at(2), member];
    let hung_up = tokio::spawn(async move { drop(stranger.accept().await.unwrap()) });
    let welcomed = tokio::spawn(async move { there.welcome().await });
    reach(&peers).await;
    hung_up.await.unwrap();
    drop(welcomed.await.unwrap());

    // It moves. Nobody is at its old addresses, whose errors are told in one order.
    let told = |hosts: &[u8]| {
        let refused = |host| format!("a-name:{port} (127.0.0.{host}): Connection refused (os error 111)");
        hosts.iter().map(refused).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(failure(&peers).await, told(&[1, 2, 3]));
    let there = There { listener: TcpListener::bind(at(4)).await.unwrap(), peers: Arc::clone(&peers) };
    assert_eq!(failure(&peers).await, told(&[1, 2, 3]));
    *addresses.lock().unwrap() = vec![at(4)];
    let welcomed = tokio::spawn(async move { there.welcome().await });
    reach(&peers).await;
    drop(welcomed.await.unwrap());
}
