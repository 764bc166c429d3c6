//! Where servers are reached: the numbers that their addresses stand for at the start of a run, and what to do where
//! none takes a connection.

use crate::Error;
use crate::workload::{DriverKind, Workload};
use os::Address;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long each address of a name may take to accept a connection.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// Where servers are reached, in the order of the workload.
pub struct Places {
    /// The servers.
    pub servers: Vec<SocketAddr>,
    /// Those of them that are connected to.
    pub targets: Vec<SocketAddr>,
    /// Their HTTP.
    pub stats: Vec<SocketAddr>,
}

impl Places {
    /// Those of a workload.
    ///
    /// # Errors
    /// If a name is not resolved.
    pub fn of(workload: &Workload) -> Result<Places, Error> {
        Ok(Places {
            servers: find_all("addresses", &workload.addresses)?,
            targets: find_all("addresses", workload.targets())?,
            stats: find_all("stats", &workload.stats)?,
        })
    }

    /// The cause of a failed connection, with a remedy; `trouble` is the driver's error.
    pub fn unreached(&self, workload: &Workload, trouble: Option<&str>) -> Error {
        let all: Vec<String> = workload.targets().iter().map(Address::to_string).collect();
        let why = trouble.map(|why| format!("; {why}")).unwrap_or_default();
        let is_refused =
            |&number: &SocketAddr| connect(number).is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused);
        let advice = match self.targets.iter().any(is_refused) {
            true => advice(workload.driver),
            false => "",
        };
        Error::Unusable(format!("not every one of {} takes connections{why}{advice}", all.join(", ")))
    }
}

/// The remedy for a refused connection.
fn advice(driver: DriverKind) -> &'static str {
    match driver {
        DriverKind::Pb | DriverKind::Http => {
            "; no node listens there: `annulet serve` starts one, and `addresses` of the workload names another"
        }
        _ => "; no server listens there: start it, or name another in `addresses` of the workload",
    }
}

fn find_all(key: &str, addresses: &[Address]) -> Result<Vec<SocketAddr>, Error> {
    let find = |address: &Address| {
        let numbers = address.resolve().map_err(|why| {
            let what =
                format!("{key}: the name of {address} is not resolved: {why}: give a name that is known");
            Error::Unusable(format!("{what} here, or a number"))
        })?;
        Ok(first_open(&numbers))
    };
    addresses.iter().map(find).collect()
}

/// The first that accepts a connection; the first of all if none does, so that errors name it.
fn first_open(numbers: &[SocketAddr]) -> SocketAddr {
    match numbers {
        [only] => *only,
        all => all.iter().copied().find(|&number| connect(number).is_ok()).unwrap_or(all[0]),
    }
}

fn connect(number: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&number, PROBE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn names_are_resolved_to_an_address_that_takes_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = SocketAddr::from(([127, 0, 0, 2], open.port()));
        assert_eq!(first_open(&[closed, open]), open);
        assert_eq!(first_open(&[closed, SocketAddr::from(([127, 0, 0, 3], open.port()))]), closed);
        let named = format!("localhost:{}", open.port());
        assert_eq!(find_all("addresses", &addresses(&[&named, "[::1]:9"])).unwrap()[..1], [open]);
        let refused = find_all("stats", &addresses(&["no-such-host.invalid:1"])).unwrap_err().to_string();
        let begin = "stats: the name of no-such-host.invalid:1 is not resolved: ";
        assert!(refused.starts_with(begin), "{refused}");
        assert!(refused.ends_with(": give a name that is known here, or a number"), "{refused}");
    }

    #[test]
    fn a_server_that_is_not_there_is_told_with_what_to_start() {
        let parse = |text: &str| {
            let rest = "[keys]\nkind = \"uniform\"\ncount = 10\n[[operation]]\nop = \"get\"\n";
            Workload::parse(&format!("{text}{rest}"), "w").unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let told = |driver: &str, at: SocketAddr, trouble: Option<&str>| {
            let workload = parse(&format!("driver = {driver:?}\naddresses = [\"{at}\"]\n"));
            Places::of(&workload).unwrap().unreached(&workload, trouble).to_string()
        };
        let closed = SocketAddr::from(([127, 0, 0, 2], open.port()));
        let begin = format!("not every one of {closed} takes connections; it is slow; no ");
        for (driver, advice) in [
            (
                "pb",
                "node listens there: `annulet serve` starts one, and `addresses` of the workload names another",
            ),
            (
                "http",
                "node listens there: `annulet serve` starts one, and `addresses` of the workload names another",
            ),
            ("etcd", "server listens there: start it, or name another in `addresses` of the workload"),
        ] {
            assert_eq!(told(driver, closed, Some("it is slow")), format!("{begin}{advice}"));
        }
        assert_eq!(told("pb", open, None), format!("not every one of {open} takes connections"));
    }
}
