//! Runs against real servers of other stores, which are started here and must be found by name: redis-server and
//! redis-cli, etcd. A Cassandra must be there: its address is told.
//!
//!     cargo test -p bench --test peers -- --ignored --test-threads 4
//!     ANNULET_CASSANDRA=127.0.0.1:9042 cargo test -p bench --test peers -- --ignored

#![allow(clippy::unwrap_used, reason = "a test")]

use bench::{Control, Identity, Observer, Workload, run};
use results::{Latencies, Results, Second, Summary};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server, which ends with this.
struct Server {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Server {
    /// Starts a program, and waits for the line that says that it is there.
    fn start(address: SocketAddr, folder: TempDir, command: &mut Command, ready: &str) -> Server {
        // Both streams in one, for each program has its own idea of where it tells what.
        let (reader, writer) = std::io::pipe().unwrap();
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let server = Server { child, address, _folder: folder };
        // The command holds the pipe open.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut told = String::new();
        let mut lines = BufReader::new(reader);
        while !told.contains(ready) {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "{told}");
            told += &line;
        }
        // Read on, or it would wait for room.
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        server
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A workload that reads and writes few keys, so that most reads are compared with a write.
fn workload(driver: &str, addresses: &[SocketAddr], rest: &str) -> String {
    let addresses: Vec<String> =
        addresses.iter().map(|address| format!("{:?}", address.to_string())).collect();
    format!(
        "driver = {driver:?}\naddresses = [{}]\nconcurrency = 16\nthreads = 2\nwarm_up = \"0s\"\ntimeout = \"2s\"\n\
         {rest}\n[keys]\nkind = \"uniform\"\ncount = 2000\n[value]\nsize = 200\n\
         [[operation]]\nop = \"get\"\nweight = 4\n[[operation]]\nop = \"update\"\nweight = 4\n\
         [[operation]]\nop = \"put\"\n[[operation]]\nop = \"head\"\n[[operation]]\nop = \"ping\"\n",
        addresses.join(", ")
    )
}

const MORE: &str = "[[operation]]\nop = \"delete\"\n[[operation]]\nop = \"reconnect\"\n";

fn run_in(dir: &Path, text: &str, control: &Control, observer: &mut dyn Observer) -> (Summary, Results) {
    let workload = Workload::parse(text, "test.toml").unwrap();
    let summary = run(&workload, dir, &Identity::default(), control, observer).unwrap();
    (summary, Results::open(dir).unwrap())
}

fn run_it(text: &str) -> (Summary, Results) {
    let folder = tempfile::tempdir().unwrap();
    run_in(&folder.path().join("results"), text, &Control::default(), &mut ())
}

/// Every operation is done and every read is right; a planted fault is found.
fn is_right_and_not_blind(driver: &str, servers: &[SocketAddr], settings: &str) {
    for pipeline in [1, 8] {
        let rest = format!("{settings}operations_max = 10000\npipeline = {pipeline}\n");
        // A connection in use is not closed.
        let more = if pipeline == 1 { MORE } else { "" };
        let (summary, results) = run_it(&format!("{}{more}", workload(driver, servers, &rest)));
        assert!(summary.verdict.passed, "{:?}", summary.verdict);
        assert_eq!(summary.total.failed, 0, "{:?}", results.errors);
        let check = &summary.check;
        assert!(check.compared > 4000 && check.not_compared == 0 && check.audited > 500, "{check:?}");
        assert_eq!(results.manifest.servers.len(), servers.len());
        assert!(results.manifest.servers[0].pid.is_some());
    }
    let planted = format!("{settings}operations_max = 6000\nplant = {{ drop_writes = 20 }}\n");
    let (summary, _) = run_it(&workload(driver, servers, &planted));
    assert!(!summary.verdict.passed && summary.check.lost > 0, "{:?}", summary.check);
    // What it cannot do is told, and counted.
    let lists = workload(driver, servers, &format!("{settings}operations_max = 100\n"));
    let (summary, results) = run_it(&(lists + "[[operation]]\nop = \"list-keys\"\n"));
    assert!(summary.total.failed > 0 && summary.verdict.passed);
    assert!(results.errors.iter().all(|error| error.kind == "unsupported"), "{:?}", results.errors);
}

/// Ends a server after a second.
struct Killer(Option<Server>);

impl Observer for Killer {
    fn second(&mut self, _second: &Second, _latencies: &[Latencies]) {
        self.0.take();
    }
}

/// A server is killed: what fails is counted, and the run ends. The servers must have been the workload's.
fn is_counted_when_killed(text: &str, victim: Server) -> (Summary, Results) {
    let folder = tempfile::tempdir().unwrap();
    let (summary, results) =
        run_in(&folder.path().join("results"), text, &Control::default(), &mut Killer(Some(victim)));
    assert!(summary.total.failed > 0 && summary.total.done > 0, "{:?}", summary.total);
    assert!(summary.check.lost == 0 && summary.check.corrupt == 0, "{:?}", summary.check);
    (summary, results)
}

const FOR_THREE_SECONDS: &str = "duration = \"3s\"\n";

mod redis {
    use super::*;

    fn start(rest: &[&str]) -> Server {
        let (address, folder) = (free_address(), tempfile::tempdir().unwrap());
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]).args(rest);
        Server::start(address, folder, &mut command, "Ready to accept connections")
    }

    fn cli(server: &Server, arguments: &[&str]) -> String {
        let port = server.address.port().to_string();
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &port]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    /// Three masters without replicas.
    fn cluster() -> [Server; 3] {
        let servers = [(); 3].map(|()| {
            let port = free_address().port().to_string();
            start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &port])
        });
        let addresses = servers.iter().map(|server| server.address.to_string());
        let addresses: Vec<String> = addresses.collect();
        let mut arguments = vec!["--cluster", "create"];
        arguments.extend(addresses.iter().map(String::as_str));
        cli(&servers[0], &[&arguments[..], &["--cluster-replicas", "0", "--cluster-yes"]].concat());
        for server in &servers {
            while !cli(server, &["cluster", "info"]).contains("cluster_state:ok") {}
        }
        servers
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_server_is_loaded_and_checked() {
        let server = start(&[]);
        is_right_and_not_blind("redis", &[server.address], "");
        let database =
            workload("redis", &[server.address], "operations_max = 2000\nredis = { database = 3 }\n");
        let (_, results) = run_it(&database);
        assert_eq!(results.manifest.servers[0].options["database"], "3");
        assert!(cli(&server, &["info", "keyspace"]).contains("db3:keys="));
        let beyond =
            workload("redis", &[server.address], "operations_max = 2000\nredis = { database = 99 }\n");
        let folder = tempfile::tempdir().unwrap();
        let beyond = Workload::parse(&beyond, "test.toml").unwrap();
        let refused = run(&beyond, folder.path(), &Identity::default(), &Control::default(), &mut ());
        assert!(refused.unwrap_err().to_string().contains("out of range"));
        cli(&server, &["config", "set", "requirepass", "x"]);
        let locked = Workload::parse(&workload("redis", &[server.address], ""), "test.toml").unwrap();
        let refused = run(&locked, folder.path(), &Identity::default(), &Control::default(), &mut ());
        assert!(refused.unwrap_err().to_string().contains("NOAUTH"));
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_killed_server_is_counted() {
        let server = start(&[]);
        let text = workload("redis", &[server.address], FOR_THREE_SECONDS);
        let (_, results) = is_counted_when_killed(&text, server);
        assert!(results.errors.iter().any(|error| error.kind == "disconnected"), "{:?}", results.errors);
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_cluster_is_loaded_and_checked() {
        let servers = cluster();
        let [a, b, _] = &servers;
        is_right_and_not_blind("redis-cluster", &servers.each_ref().map(|server| server.address), "");
        // One is enough to find all, and each has its share of the keys.
        let (summary, _) = run_it(&workload("redis-cluster", &[b.address], "operations_max = 2000\n"));
        assert!(summary.verdict.passed && summary.total.failed == 0);
        for server in &servers {
            let keys: u32 = cli(server, &["dbsize"]).trim().parse().unwrap();
            assert!((300..1300).contains(&keys), "{keys}");
        }
        // Alone, a server of it sends clients away.
        let (_, results) = run_it(&workload("redis", &[a.address], "operations_max = 2000\n"));
        assert!(results.errors.iter().any(|error| error.text.starts_with("MOVED ")));
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn slots_are_followed_when_they_move() {
        let servers = cluster();
        let [a, b, c] = &servers;
        let folder = tempfile::tempdir().unwrap();
        let text = workload("redis-cluster", &[c.address], "duration = \"10m\"\n");
        let control = Control::default();
        let (from, to) = (cli(a, &["cluster", "myid"]), cli(b, &["cluster", "myid"]));
        let summary = std::thread::scope(|scope| {
            scope.spawn(|| {
                while control.elapsed_s().is_none() {
                    std::thread::yield_now();
                }
                let at = a.address.to_string();
                let (from, to) = (["--cluster-from", from.trim()], ["--cluster-to", to.trim()]);
                let reshard = ["--cluster", "reshard", &at, "--cluster-slots", "1500", "--cluster-yes"];
                cli(a, &[&reshard[..], &from, &to].concat());
                control.stop();
            });
            run_in(&folder.path().join("results"), &text, &control, &mut ())
        });
        let (summary, results) = summary;
        assert!(summary.verdict.passed, "{:?}", summary.verdict);
        assert_eq!(summary.total.failed, 0, "{:?}", results.errors);
        assert!(
            cli(b, &["cluster", "nodes"])
                .lines()
                .any(|line| line.contains("myself") && line.contains(" 0-1499"))
        );
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_killed_server_of_a_cluster_is_counted() {
        let [a, b, c] = cluster();
        let text = workload("redis-cluster", &[a.address, b.address, c.address], FOR_THREE_SECONDS);
        let (_, results) = is_counted_when_killed(&text, c);
        let kinds = ["disconnected", "refused", "unavailable"];
        assert!(results.errors.iter().all(|error| kinds.contains(&&*error.kind)), "{:?}", results.errors);
    }
}

mod etcd {
    use super::*;

    /// So many members, on their own folders.
    fn start(count: usize) -> Vec<Server> {
        let places: Vec<[SocketAddr; 2]> = (0..count).map(|_| [free_address(), free_address()]).collect();
        let peers = places.iter().enumerate().map(|(at, [_, peer])| format!("m{at}=http://{peer}"));
        let peers = peers.collect::<Vec<String>>().join(",");
        let member = |(at, &[client, peer]): (usize, &[SocketAddr; 2])| {
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
            let mut command = Command::new("etcd");
            command.args(["--name", &format!("m{at}"), "--data-dir", "data", "--initial-cluster", &peers]);
            command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
            command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
            // Each waits for the others, so they are started side by side.
            std::thread::spawn(move || {
                Server::start(
                    client,
                    tempfile::tempdir().unwrap(),
                    &mut command,
                    "ready to serve client requests",
                )
            })
        };
        let started: Vec<_> = places.iter().enumerate().map(member).collect();
        started.into_iter().map(|server| server.join().unwrap()).collect()
    }

    #[test]
    #[ignore = "needs etcd"]
    fn a_member_is_loaded_and_checked() {
        let servers = start(1);
        is_right_and_not_blind("etcd", &[servers[0].address], "");
    }

    #[test]
    #[ignore = "needs etcd"]
    fn a_killed_member_is_counted() {
        let mut servers = start(3);
        let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
        let text = workload("etcd", &addresses, FOR_THREE_SECONDS);
        is_counted_when_killed(&text, servers.pop().unwrap());
    }

    #[test]
    #[ignore = "needs etcd"]
    fn a_run_ends_when_nobody_is_left() {
        let mut servers = start(1);
        let text = workload("etcd", &[servers[0].address], FOR_THREE_SECONDS);
        let (_, results) = is_counted_when_killed(&text, servers.pop().unwrap());
        assert!(results.errors.iter().any(|error| error.kind == "disconnected"), "{:?}", results.errors);
    }
}

mod cassandra {
    use super::*;

    #[test]
    #[ignore = "needs a Cassandra, whose address is in ANNULET_CASSANDRA"]
    fn a_node_is_loaded_and_checked() {
        let address = std::env::var("ANNULET_CASSANDRA").unwrap().parse().unwrap();
        let settings = "cassandra = { replication = 1, table = \"tested\" }\n";
        is_right_and_not_blind("cassandra", &[address], settings);
    }
}
