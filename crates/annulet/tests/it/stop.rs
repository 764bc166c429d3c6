//! Clean stops of real nodes: a planned restart of one of several, and a stop under scrapes.
use crate::common::Server;
use crate::common::nodes::{Cluster, count, until};
use bytes::Bytes;
use client::{Content, ReadOptions, WriteOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Says that it is over, also where a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What clients of the others ask is passed on to it, and to be answered by it, until the moment at which it stops.
/// They try nothing again.
#[test]
fn clients_of_others_do_not_notice_that_a_node_stops() {
    const STOPS: usize = 4;
    const CLIENTS_EACH: usize = 2;
    /// Answers between one stop and the next start, and the other way round.
    const BETWEEN: usize = 2_000;
    let cluster = Cluster::new(5);
    let start = |node| cluster.start(node, &["--durability", "none"]);
    let have_links = |server: &Server, links| {
        until("links", || count(server, "peer_links_up") == links && count(server, "peer_links_in") == links);
    };
    let others: Vec<Server> = (1..=4).map(start).collect();
    let (answers, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let ask = |server: &Server, name: usize| {
            let mut client = server.connect();
            let (answers, is_over) = (&answers, &is_over);
            scope.spawn(move || {
                let mut ask = |key: &str| {
                    let content = Content { value: Bytes::from_static(b"v"), ..Content::default() };
                    client.put(None, b"b", Some(key.as_bytes()), content, &WriteOptions::default())?;
                    client.get(None, b"b", key.as_bytes(), &ReadOptions::default())
                };
                (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).try_for_each(|at| {
                    // Who stands in for a node that comes or goes need not be asked by the next read: quorums are
                    // sloppy.
                    ask(&format!("{name} {}", at % 64)).map_err(|error| error.to_string())?;
                    answers.fetch_add(1, Ordering::Relaxed);
                    Ok::<(), String>(())
                })
            })
        };
        let go_on = || {
            let before = answers.load(Ordering::Relaxed);
            until("answers", || answers.load(Ordering::Relaxed) >= before + BETWEEN);
        };
        let mut clients = Vec::new();
        for stop in 0..STOPS {
            let server = start(5);
            others.iter().for_each(|other| have_links(other, 4));
            if stop == 0 {
                let each = others.iter().flat_map(|server| [server; CLIENTS_EACH]).enumerate();
                clients = each.map(|(name, server)| ask(server, name)).collect();
            }
            go_on();
            server.stop();
            others.iter().for_each(|other| have_links(other, 3));
            go_on();
        }
        drop(over);
        let ends: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        assert_eq!(ends, [const { Ok(()) }; 4 * CLIENTS_EACH]);
    });
    let forwards: u64 = others.iter().map(|server| count(server, "forwards")).sum();
    assert!(forwards > 0);
    others.into_iter().for_each(Server::stop);
}

/// Each client has asked for more pages than are made before the stop, so one is always under way.
#[test]
fn a_stop_while_pages_of_figures_are_made_is_clean() {
    const CLIENTS: usize = 4;
    const PAGES: usize = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--data", "data", "--shards", "2"]);
    let paths = ["/metrics", "/stats"].into_iter().cycle().take(PAGES);
    let requests: String =
        paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).collect();

    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.http).unwrap();
            let (begun, has_begun) = std::sync::mpsc::channel();
            let mut sending = stream.try_clone().unwrap();
            let requests = requests.clone();
            // The end of the connection may come before all is sent.
            std::thread::spawn(move || sending.write_all(requests.as_bytes()).ok());
            let client = std::thread::spawn(move || {
                let mut answers = vec![0; 1];
                stream.read_exact(&mut answers).unwrap();
                begun.send(()).unwrap();
                // It is reset if requests are left.
                stream.read_to_end(&mut answers).ok();
                answers.windows(12).filter(|bytes| bytes == b"HTTP/1.1 200").count()
            });
            has_begun.recv().unwrap();
            client
        })
        .collect();
    server.stop();
    for client in clients {
        let answers = client.join().unwrap();
        assert!((1..PAGES).contains(&answers), "{answers} answers");
    }
}
