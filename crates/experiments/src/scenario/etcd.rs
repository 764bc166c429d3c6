//! The members of etcd, as the servers of a scenario: Debian's etcd-server on the addresses that nodes would have.
//!
//! 1. [`check`] looks for the program, before anything is started.
//! 2. [`plans`] makes the commands of all members. Each takes connections at once, and serves when a majority runs.
//! 3. [`await_leader`] waits until a linearizable read is answered, which takes a leader.
//!
//! Settings are etcd's defaults: reads are linearizable, and each write is synced by a majority. Only the room of a
//! store is larger, since a run writes more than the default of 2 GiB.
//!
//! Left out: TLS between members, and the figures that etcd has of itself.

use super::launch::NodeAddresses;
use super::nodes::Plan;
use bench::{Control, Error, Identity, Workload};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// The program.
const PROGRAM: &str = "etcd";

/// Bytes of a member's store: more than any run writes.
const QUOTA_BYTES: &str = "8589934592";

/// Time until the members have a leader, at most.
const START_MAX: Duration = Duration::from_secs(30);

/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(100);

/// The read of a key that nobody writes.
const READ: &str = "driver = \"etcd\"\nwarm_up = \"0s\"\noperations_max = 1\ntimeout = \"1s\"\nconcurrency = 1\n\
                    bucket = \"start\"\nkeys = { kind = \"uniform\", count = 1 }\noperation = [{ op = \"get\" }]\n";

/// That the program is there.
///
/// # Errors
/// [`Error::Unusable`] with the package to install.
pub fn check() -> Result<(), Error> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&folders).any(|folder| folder.join(PROGRAM).is_file()) {
        true => Ok(()),
        false => Err(Error::Unusable(format!("{PROGRAM} is missing: apt-get install etcd-server"))),
    }
}

/// The plans of all members, whose folders are in `home`.
pub fn plans(home: &Path, members: &[NodeAddresses]) -> Vec<Plan> {
    let url = |address: SocketAddr| format!("http://{address}");
    let peers: Vec<String> =
        members.iter().map(|member| format!("{}={}", member.name, url(member.peers))).collect();
    let peers = peers.join(",");

    let plan = |at: usize, member: &NodeAddresses| {
        let data = home.join(format!("n{}", at + 1));
        let (client_url, peer_url) = (url(member.pb), url(member.peers));
        let flags = [
            ["--name", &member.name],
            ["--initial-cluster", &peers],
            ["--listen-client-urls", &client_url],
            ["--advertise-client-urls", &client_url],
            ["--listen-peer-urls", &peer_url],
            ["--initial-advertise-peer-urls", &peer_url],
            ["--quota-backend-bytes", QUOTA_BYTES],
        ];
        let mut command: Vec<OsString> = vec![PROGRAM.into()];
        command.extend(flags.as_flattened().iter().map(|word| word.into()));
        command.extend(["--data-dir".into(), data.join("data").into()]);
        Plan {
            name: member.name.clone(),
            pb: member.pb,
            http: member.pb,
            data,
            program: PROGRAM.into(),
            command,
            groups: Vec::new(),
            ends_by_signal: true,
        }
    };
    members.iter().enumerate().map(|(at, member)| plan(at, member)).collect()
}

/// Waits until a member answers a linearizable read.
///
/// # Errors
/// [`Error::Unusable`] if the members have no leader in time.
pub fn await_leader(address: SocketAddr) -> Result<(), Error> {
    let mut workload = Workload::parse(READ, "start of etcd")?;
    workload.addresses = vec![address.into()];
    let begin = Instant::now();
    loop {
        let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
        let (identity, control) = (Identity::default(), Control::default());
        let read = bench::run(&workload, &folder.path().join("read"), &identity, &control, &mut ());
        if read.is_ok_and(|summary| summary.total.done > 0) {
            return Ok(());
        }
        if begin.elapsed() > START_MAX {
            return Err(Error::Unusable(format!("{PROGRAM} has no leader after {START_MAX:?}")));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn members_know_each_other_by_the_addresses_of_nodes() {
        let members: Vec<_> =
            (1..=3).map(|number| NodeAddresses::of(Ipv4Addr::LOCALHOST.into(), 20_000, number)).collect();
        let plans = plans(Path::new("/home"), &members);
        let words: Vec<_> = plans[1].command.iter().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ");
        let peers =
            "--initial-cluster n1@127.0.0.1=http://127.0.0.1:20019,n2@127.0.0.1=http://127.0.0.1:20029,";
        assert!(words.starts_with("etcd --name n2@127.0.0.1 ") && words.contains(peers), "{words}");
        assert!(words.contains("--listen-client-urls http://127.0.0.1:20027 "), "{words}");
        assert!(words.ends_with("--data-dir /home/n2/data"), "{words}");
    }

    #[test]
    fn the_read_of_the_start_is_a_workload() {
        assert_eq!(Workload::parse(READ, "start").unwrap().labels(), ["get"]);
    }
}
