//! Handshakes of many clients at once, and those that do not end.

use super::client::ping;
use super::fixture::{Doors, with_doors};
use crate::security::Policies;
use crate::security::tls::tests::Certificates;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

#[test]
fn a_pool_of_one_address_may_shake_hands_at_once() {
    let certificates = Arc::new(Certificates::new());
    let given = Arc::clone(&certificates);
    let guard = with_doors(&certificates, &Arc::new(Policies::new()), move |Doors { https, .. }| {
        let begin = |_| {
            let mut stream = given.client(None, TcpStream::connect(https).unwrap());
            stream.conn.write_tls(&mut stream.sock).unwrap();
            stream
        };
        let pool: Vec<_> = (0..64).map(begin).collect();
        for mut stream in pool {
            assert!(ping(&mut stream, "").starts_with("HTTP/1.1 200 "));
        }
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    assert_eq!(told["security_handshakes_dropped"], 0);
}

#[test]
fn half_open_handshakes_keep_nobody_out() {
    let certificates = Arc::new(Certificates::new());
    let given = Arc::clone(&certificates);
    let guard = with_doors(&certificates, &Arc::new(Policies::new()), move |Doors { https, .. }| {
        // The first bytes of a hello, and no more: all of them from the address of the client that follows.
        let half_open = || {
            let mut tcp = TcpStream::connect(https).unwrap();
            tcp.write_all(&[22, 3, 1]).unwrap();
            tcp
        };
        let held: Vec<TcpStream> = (0..300).map(|_| half_open()).collect();
        let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(https).unwrap()).collect();
        let mut stream = given.client(None, TcpStream::connect(https).unwrap());
        assert!(ping(&mut stream, "").starts_with("HTTP/1.1 200 "));
        drop((held, silent));
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    // All but those of 16 places; the silent ones have none.
    let dropped = told["security_handshakes_dropped"].as_u64().unwrap();
    assert!((1..=301 - 16).contains(&dropped), "{told}");
}
