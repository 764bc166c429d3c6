//! Certificates that are of use, and that are not; and what passes through a channel.

use super::channel::Channel;
use super::tls::{Tls, TlsError, certificate_name, stands_for};
use super::{Peers, Roster};
use crate::config::Member;
use crate::membership::{self, AsOf};
use ::membership::ClusterId;
use ::membership::log::Identity;
use ::membership::state::State;
use base::Rng;
use base::rng::SplitMix64;
use bytes::BytesMut;
use os::Address;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ring::{NodeId, RingSize};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

/// An authority and one node's certificate.
struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new(node: &str) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().unwrap();
        let names = vec![certificate_name(node)];
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        for (name, text) in [("ca.pem", ca.pem()), ("n.pem", cert.pem()), ("n.key", key.serialize_pem())] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Folder { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn load(&self, node: &str) -> Result<Tls, TlsError> {
        load(&self.path("ca.pem"), &self.path("n.pem"), &self.path("n.key"), node)
    }
}

/// What a test of something else needs.
pub(crate) fn test_tls(node: &str) -> Tls {
    Folder::new(node).load(node).unwrap()
}

fn load(ca: &Path, cert: &Path, key: &Path, node: &str) -> Result<Tls, TlsError> {
    Tls::load(ca, cert, key, node)
}

fn refused(result: Result<Tls, TlsError>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn a_node_has_a_dns_name_that_no_other_has() {
    assert_eq!(certificate_name("n1@127.0.0.1"), "6e31403132372e302e302e31.annulet");
    let longest = certificate_name(&"ü".repeat(crate::config::NODE_NAME_BYTES_MAX / 2));
    assert!(
        longest.len() <= 253 && longest.split('.').all(|label| (1..=63).contains(&label.len())),
        "{longest}"
    );
    assert_ne!(certificate_name("a@b"), certificate_name("A@b"), "case counts");
}

#[test]
fn a_certificate_stands_for_its_node_and_no_other() {
    let long = format!("{}@host", "n".repeat(90));
    for name in ["n1@127.0.0.1", "ü_x@[::1]", &long] {
        let folder = Folder::new(name);
        folder.load(name).unwrap();
        let certificate = CertificateDer::from_pem_file(folder.path("n.pem")).unwrap();
        assert!(stands_for(&certificate, name));
        assert!(!stands_for(&certificate, "n2@127.0.0.1"));
        let text = refused(folder.load("n2@127.0.0.1"));
        assert!(text.contains("n.pem: it does not name n2@127.0.0.1"), "{text}");
    }
    assert!(!stands_for(&CertificateDer::from(vec![1, 2, 3]), "n1@127.0.0.1"));
}

#[test]
fn files_that_do_not_belong_together_are_told() {
    let (one, other) = (Folder::new("a@b"), Folder::new("a@b"));
    let text = refused(load(&other.path("ca.pem"), &one.path("n.pem"), &one.path("n.key"), "a@b"));
    assert!(text.contains("n.pem: not of this certificate authority"), "{text}");
    let text = refused(load(&one.path("ca.pem"), &one.path("n.pem"), &other.path("n.key"), "a@b"));
    assert!(text.contains("n.key: "), "{text}");
    let text = refused(load(&one.path("ca.pem"), &one.path("n.pem"), &one.path("ca.pem"), "a@b"));
    assert!(text.contains("ca.pem: "), "{text}");
    let text = refused(load(&one.path("n.key"), &one.path("n.pem"), &one.path("n.key"), "a@b"));
    assert!(text.contains("n.key: no certificate in this file"), "{text}");
    let text = refused(load(&one.path("none.pem"), &one.path("n.pem"), &one.path("n.key"), "a@b"));
    assert!(text.contains("none.pem: "), "{text}");
}

/// Both ends of a link.
async fn linked(opener: &Tls, acceptor: &Tls) -> (Option<Channel>, Option<Channel>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut channel = Channel::new(tcp, opener.open("a@b").unwrap());
        channel.handshake(&mut BytesMut::new()).await.ok().map(|()| channel)
    };
    let accept = async {
        let mut channel = Channel::new(listener.accept().await.unwrap().0, acceptor.accept().unwrap());
        channel.handshake(&mut BytesMut::new()).await.ok().map(|()| channel)
    };
    tokio::join!(open, accept)
}

#[tokio::test(flavor = "current_thread")]
async fn certificates_are_read_again() {
    let (first, second) = (Folder::new("a@b"), Folder::new("a@b"));
    let (tls, other) = (first.load("a@b").unwrap(), second.load("a@b").unwrap());
    assert!(linked(&tls, &other).await.1.is_none(), "another authority");
    std::fs::copy(second.path("n.pem"), first.path("n.pem")).unwrap();
    let told = tls.read_again().map(drop).unwrap_err().to_string();
    assert!(told.contains("n.pem: not of this certificate authority"), "{told}");

    for name in ["ca.pem", "n.key"] {
        std::fs::copy(second.path(name), first.path(name)).unwrap();
    }
    let ends = tls.read_again().unwrap();
    assert!(linked(&tls, &other).await.1.is_none(), "nothing is in force before it is replaced");
    tls.replace(ends);
    assert!(linked(&tls, &other).await.1.is_some() && linked(&other, &tls).await.1.is_some());
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_written_is_read_whatever_the_pieces() {
    let folder = Folder::new("a@b");
    let tls = folder.load("a@b").unwrap();
    let (opener, acceptor) = linked(&tls, &tls).await;
    let (mut opener, mut acceptor) = (opener.unwrap(), acceptor.unwrap());
    assert!(acceptor.certificate().is_some_and(|certificate| stands_for(certificate, "a@b")));

    let mut rng = SplitMix64::new(1);
    let sizes = [1, 100, 4096, 16_384, 70_000, 1 << 20];
    let writes: Vec<Vec<Vec<u8>>> = (0..60)
        .map(|_| {
            let size = |rng: &mut SplitMix64| sizes[rng.below(sizes.len() as u64) as usize];
            (0..1 + rng.below(4)).map(|_| vec![rng.next_u64() as u8; size(&mut rng)]).collect()
        })
        .collect();
    let expected: Vec<u8> = writes.iter().flatten().flatten().copied().collect();
    let write = async {
        for pieces in &writes {
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            opener.write(&pieces).await.unwrap();
        }
        assert!(opener.writes >= writes.len() as u64);
        drop(opener);
    };
    let read = async {
        let (mut input, mut scratch) = (BytesMut::new(), vec![0; 10_000]);
        while acceptor.read(&mut input, &mut scratch).await.unwrap() {}
        input
    };
    let ((), input) = tokio::join!(write, read);
    assert!(input == expected, "{} of {} bytes", input.len(), expected.len());
}

pub(super) fn state(nodes: &[(&str, &str)]) -> State {
    let nodes = nodes.iter().map(|(name, address)| (*name, *address, ""));
    State::found_by(ClusterId(1), (RingSize::new(8).unwrap(), RingSize::new(128).unwrap()), nodes).unwrap()
}

#[test]
fn a_roster_has_the_members_and_where_they_are() {
    let two = state(&[("a@h", "127.0.0.1:1"), ("b@h", "")]);
    let roster = |state: &State| Roster::of(NodeId(0), state, AsOf::default());
    let found = roster(&two).unwrap();
    assert_eq!((found.named("b@h"), found.named("c@h")), (Some(NodeId(1)), None));
    assert_eq!(found.address(NodeId(0)).map(Address::as_str), Some("127.0.0.1:1"));
    assert_eq!(found.address(NodeId(1)), None);
    assert!(
        found.has_address("127.0.0.1".parse().unwrap()) && !found.has_address("127.0.0.2".parse().unwrap())
    );
    assert_eq!(Roster::of(NodeId(2), &two, AsOf::default()), None, "not a member");
    let later = Roster::of(NodeId(0), &two, AsOf { epoch: 1, commit: 2 }).unwrap();
    assert!(found.is_like(&later), "links are the same");
    let moved = state(&[("a@h", "127.0.0.1:1"), ("b@h", "127.0.0.1:2")]);
    assert!(!found.is_like(&roster(&moved).unwrap()));
    assert!(!found.is_like(&roster(&state(&[("a@h", "127.0.0.1:1")])).unwrap()));
}

#[test]
fn where_a_member_says_it_is_counts_until_all_agree_on_it() {
    let roster = |address, commit| {
        let state = state(&[("a@h", "127.0.0.1:1"), ("b@h", address)]);
        Roster::of(NodeId(0), &state, AsOf { epoch: 1, commit }).unwrap()
    };
    let here = Identity {
        cluster: ClusterId(1),
        node: NodeId(0),
        starts: 1,
        start: 9,
        address: "127.0.0.1:1".to_owned(),
    };
    let (membership, _inbox) = membership::queue(1);
    let told = |name: &str, port| Member {
        name: name.to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], port)).into(),
    };
    let told = vec![told("a@h", 1), told("b@h", 9), told("gone@h", 8)];
    let peers = Peers::new(test_tls("a@h"), &here, roster("127.0.0.1:2", 1), told, membership);
    assert_eq!((peers.hello.life, &*peers.hello.from, &*peers.hello.address), (9, "a@h", "127.0.0.1:1"));
    let mut changes = peers.subscribe();
    // Behind it comes what the process was told.
    let at = || {
        let ports: Vec<u16> = peers.addresses(NodeId(1)).iter().map(Address::port).collect();
        assert_eq!(ports.iter().filter(|port| **port == 9).count(), 1);
        assert!(ports.len() < 2 || ports[ports.len() - 1] == 9 || ports[0] == 9, "{ports:?}");
        ports[0]
    };
    for (said, port) in [
        ("127.0.0.1:3", 3),
        ("", 2),
        ("0.0.0.0:4", 2),
        ("127.0.0.1:0", 2),
        ("127.0.0.1:9", 9),
        ("a-name:4", 4),
        ("127.0.0.1:3", 3),
    ] {
        peers.note_address(NodeId(1), said);
        assert_eq!(at(), port, "{said}");
    }
    // What has nothing to do with it changes nothing, and wakes nobody.
    peers.follow(roster("127.0.0.1:2", 5));
    assert_eq!((at(), changes.has_changed().unwrap()), (3, false));
    assert_eq!(peers.roster().as_of.commit, 5);
    peers.follow(roster("127.0.0.1:4", 6));
    assert_eq!((at(), changes.has_changed().unwrap()), (4, true));
    assert_eq!(changes.borrow_and_update().members().count(), 2);

    // Connections from the addresses that a member's name has had last may be that member's.
    peers.follow(roster("b-name:5", 7));
    assert_eq!(peers.addresses(NodeId(1))[0].as_str(), "b-name:5");
    let may_be = |text: &str| peers.may_be_member(text.parse().unwrap());
    assert!(!may_be("10.1.1.1"));
    peers.note_numbers(NodeId(1), &["10.1.1.1:5".parse().unwrap(), "[fd00::1]:5".parse().unwrap()]);
    assert!(may_be("10.1.1.1") && may_be("fd00::1") && may_be("127.0.0.1"));
    peers.note_numbers(NodeId(1), &["10.1.1.2:5".parse().unwrap()]);
    assert!(!may_be("10.1.1.1") && may_be("10.1.1.2"));
}

/// Two that change places know of each other's new place by their own old one; what is another member's is not tried.
#[test]
fn a_member_is_looked_for_where_this_node_was_before() {
    let state = state(&[("a@h", "127.0.0.1:1"), ("b@h", "127.0.0.1:2"), ("c@h", "127.0.0.1:3")]);
    let roster = Roster::of(NodeId(0), &state, AsOf { epoch: 1, commit: 1 }).unwrap();
    let here = Identity {
        cluster: ClusterId(1),
        node: NodeId(0),
        starts: 2,
        start: 9,
        address: "127.0.0.1:2".to_owned(),
    };
    let (membership, _inbox) = membership::queue(1);
    let told = [("a@h", 1), ("b@h", 2), ("c@h", 3)];
    let told = told.map(|(name, port)| Member {
        name: name.to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], port)).into(),
    });
    let peers = Peers::new(test_tls("a@h"), &here, roster, told.to_vec(), membership);
    let ports = |node| peers.addresses(NodeId(node)).iter().map(Address::port).collect::<Vec<_>>();
    assert_eq!((ports(1), ports(2)), (vec![2, 1], vec![3, 1]));
    peers.note_address(NodeId(1), "127.0.0.1:1");
    assert_eq!((ports(1), ports(2)), (vec![1, 2], vec![3]));
}
