//! Real nodes in control groups with little memory: more is asked of them than fits, and the kernel has no reason to
//! end them.
use crate::common::nodes::{Cluster, count, stats, until};
use crate::common::{ANNULET, Server, annulet};
use bytes::Bytes;
use client::{Client, Content, Error, ReadOptions, Timeouts, WriteOptions};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: usize = 1 << 20;

/// Clients at a time, half of them by each protocol.
const CLIENTS: usize = 30;

/// A control group with a limit. It is removed when this is dropped.
struct Group(PathBuf);

impl Group {
    /// Where this machine lets groups be made, with the limit's file.
    fn new(bytes: usize) -> Option<Group> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("annulet-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let v1 = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");
        let v2 = ("/sys/fs/cgroup", "memory.max");
        for (root, file) in [v1, v2] {
            let group = Group(Path::new(root).join(&name));
            let has_controller = Path::new(root).join("cgroup.procs").exists();
            if has_controller
                && std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join(file), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        eprintln!("skipped: no control group that limits memory can be made here");
        None
    }

    /// The program in this group.
    fn annulet(&self, dir: &Path, args: &[&str]) -> Command {
        // The shell is in the group before the program takes any memory.
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let plain = annulet(dir, args);
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(&self.0).arg(ANNULET).args(args);
        plain.get_envs().for_each(|(name, value)| match value {
            Some(value) => drop(command.env(name, value)),
            None => drop(command.env_remove(name)),
        });
        command.current_dir(dir).stdin(std::process::Stdio::null());
        command
    }

    fn start(&self, dir: &Path, args: &[&str]) -> Server {
        let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        Server::started(self.annulet(dir, &[&ports, args].concat()).env("ANNULET_LOG", "warn"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The node in it has ended, if the test has not failed.
        std::fs::remove_dir(&self.0).ok();
    }
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    Overload,
    TooLarge,
}

fn key(client: usize) -> String {
    format!("k{client}")
}

/// A value that is this client's alone.
fn value(client: usize, bytes: usize) -> Bytes {
    Bytes::from(vec![b'a' + client as u8 % 26; bytes])
}

fn put_by_pb(client: &mut Client, number: usize, bytes: usize) -> Told {
    let content = Content { value: value(number, bytes), ..Content::default() };
    match client.put(None, b"b", Some(key(number).as_bytes()), content, &WriteOptions::default()) {
        Ok(_) => Told::Done,
        Err(Error::Server(error)) if error.to_string().contains("overload") => Told::Overload,
        Err(error) if error.to_string().contains("too large") => Told::TooLarge,
        Err(error) => panic!("{error}"),
    }
}

fn put_by_http(stream: &mut TcpStream, number: usize, bytes: usize) -> Told {
    let head = format!(
        "PUT /types/default/buckets/b/keys/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\
         Content-Length: {bytes}\r\n\r\n",
        key(number)
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A refusal may come before the end of the body, and the connection may end after it.
    stream.write_all(&value(number, bytes)).ok();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    match &answer[9..] {
        b"204" | b"200" | b"201" => Told::Done,
        b"503" => Told::Overload,
        b"413" => Told::TooLarge,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

/// Clients that all put a large value at once; what each was told.
fn put_all(servers: &[&Server], bytes: usize) -> Vec<Told> {
    std::thread::scope(|scope| {
        let put = |number: usize| {
            let server = servers[number / 2 % servers.len()];
            scope.spawn(move || match number % 2 {
                0 => {
                    let mut client = server.connect();
                    // The first frame of a connection may not be so large.
                    client.ping().unwrap();
                    let told = put_by_pb(&mut client, number, bytes);
                    if told == Told::Overload {
                        client.ping().expect("a client that was refused may stay");
                    }
                    told
                }
                _ => put_by_http(&mut TcpStream::connect(&server.http).unwrap(), number, bytes),
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(put).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// All that was acknowledged is there, one after the other.
fn check_all(server: &Server, told: &[Told], bytes: usize) {
    let mut client = Client::connect(&*server.pb, Timeouts::default()).unwrap();
    for (number, _) in told.iter().enumerate().filter(|(_, told)| **told == Told::Done) {
        let mut found = None;
        until("a read that fits", || {
            match client.get(None, b"b", key(number).as_bytes(), &ReadOptions::default()) {
                Ok(object) => found = object,
                Err(Error::Server(error)) if error.to_string().contains("overload") => return false,
                Err(error) => panic!("{error}"),
            }
            true
        });
        assert_eq!(found.unwrap().siblings[0].value, value(number, bytes), "client {number}");
    }
}

/// Clients that ask for large values and take nothing of the answers.
fn ask_all(server: &Server, told: &[Told]) -> Vec<TcpStream> {
    let is_done = |&number: &usize| told[number] == Told::Done;
    let stored: Vec<usize> = (0..told.len()).filter(is_done).collect();
    let before = count(server, "node_gets_total");
    let ask = |at: usize| {
        let key = key(stored[at % stored.len()]);
        let (address, request) = match at % 2 {
            0 => {
                let body = [&[0x0a, 1, b'b', 0x12, key.len() as u8], key.as_bytes()].concat();
                let len = (body.len() as u32 + 1).to_be_bytes();
                (&server.pb, [&len[..], &[9], &body].concat())
            }
            _ => {
                let path = format!("/types/default/buckets/b/keys/{key}");
                (&server.http, format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes())
            }
        };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&request).unwrap();
        stream
    };
    let clients = (0..CLIENTS).map(ask).collect();
    until("answers", || {
        let stats = stats(server);
        let number = |name: &str| stats[name].as_u64().unwrap();
        number("node_gets_total") >= before + CLIENTS as u64 && number("requests_under_way") == 0
    });
    clients
}

/// Puts and reads that are more than a node of so much memory can hold at once.
fn overfill(memory: usize, bytes: usize, shards: &str) {
    let Some(group) = Group::new(memory) else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = group.start(dir.path(), &["--durability", "none", "--shards", shards]);
    assert_eq!(count(&server, "memory_limit"), memory as u64, "the group's limit is found");
    assert!(server.banner.contains(&format!("{} MiB  (/sys/fs/cgroup", memory / MIB)), "{}", server.banner);

    let told = put_all(&[&server], bytes);
    assert!(told.contains(&Told::Done) && !told.contains(&Told::TooLarge), "{told:?}");
    assert!(
        count(&server, "memory_requests_refused_total") > 0,
        "requests are refused before they have arrived"
    );
    check_all(&server, &told, bytes);

    let clients = ask_all(&server, &told);
    assert!(count(&server, "memory_answers") > 0, "some answers wait for their clients");
    assert!(
        count(&server, "memory_answers_refused_total") + count(&server, "memory_values_refused_total") > 0
    );
    let mut small = server.connect();
    assert_eq!(put_by_pb(&mut small, CLIENTS, 100), Told::Done, "small requests go on");
    drop(clients);
    until("memory that is given back", || {
        let stats = stats(&server);
        ["requests", "values", "answers", "records"].iter().all(|part| {
            let used = stats[format!("memory_{part}")].as_u64().unwrap();
            used <= MIB as u64
        })
    });
    check_all(&server, &told, bytes);
    server.stop();
}

#[test]
fn a_node_of_a_gigabyte_outlives_thirty_large_puts_and_reads() {
    overfill(1024 * MIB, 40 * MIB, "2");
}

#[test]
fn a_node_of_256_mebibytes_takes_what_fits_and_names_its_limit() {
    let Some(group) = Group::new(256 * MIB) else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = group.start(dir.path(), &["--durability", "none", "--shards", "1"]);
    let mut client = server.connect();
    client.ping().unwrap();
    assert_eq!(put_by_pb(&mut client, 0, 40 * MIB), Told::TooLarge);
    assert_eq!(put_by_http(&mut TcpStream::connect(&server.http).unwrap(), 1, 40 * MIB), Told::TooLarge);
    server.stop();
    overfill(256 * MIB, 12 * MIB, "1");
}

#[test]
#[ignore = "takes long"]
fn a_node_of_512_mebibytes_outlives_thirty_large_puts_and_reads() {
    overfill(512 * MIB, 40 * MIB, "2");
}

#[test]
#[ignore = "takes long"]
fn many_shards_share_what_there_is() {
    overfill(512 * MIB, 20 * MIB, "4");
    overfill(1024 * MIB, 40 * MIB, "8");
}

/// Two nodes whose queues for a third fill up, since that is paused.
#[test]
fn a_paused_node_does_not_fill_the_memory_of_others() {
    const MEMORY: usize = 512 * MIB;
    const BYTES: usize = 8 * MIB;
    let cluster = Cluster::new(3);
    let certs = cluster.dir.path().join("certs");
    let groups: Vec<Group> = (0..3).map_while(|_| Group::new(MEMORY)).collect();
    if groups.len() < 3 {
        return;
    }
    let start = |node: usize| {
        let args = Cluster::args(node, &cluster.list(), &certs, &["--durability", "none"]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        groups[node - 1].start(cluster.dir.path(), &args)
    };
    let [one, two, three] = [1, 2, 3].map(start);
    for server in [&one, &two, &three] {
        until("links", || count(server, "peer_links_up") == 2);
    }
    three.signal(Signal::STOP);
    let mut told = Vec::new();
    // The queues for the third are full at first, and then it is taken for down.
    until("a put that is done", || {
        told = put_all(&[&one, &two], BYTES);
        told.contains(&Told::Done)
    });
    three.signal(Signal::CONT);
    check_all(&one, &told, BYTES);
    check_all(&two, &told, BYTES);
    for server in [one, two, three] {
        assert!(server.http_get("/ping").starts_with("HTTP/1.1 200"));
        server.stop();
    }
}
