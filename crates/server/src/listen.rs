//! Listening sockets.

use crate::error::Error;
use os::Address;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that the kernel may hold for us before we accept them: a storm of clients that reconnect.
const BACKLOG: i32 = 4096;

/// Opens `count` listeners on the address that `option` names; with several, the kernel spreads connections over them.
///
/// A name may have several addresses. The first one of this machine is taken, of IP version 4 if there is one.
pub fn listen(option: &'static str, address: &Address, count: usize) -> Result<Vec<TcpListener>, Error> {
    let failed = |cause| Error::Listen { option, address: address.clone(), cause };
    let numbers =
        address.resolve().map_err(|cause| Error::ListenName { option, address: address.clone(), cause })?;

    // Sharing a port would let another process of the same user take half of its connections unnoticed, so
    // first see whether anybody has it.
    let first = bind_any(&numbers).map_err(failed)?;
    if count == 1 {
        return Ok(vec![first]);
    }
    let number = first.local_addr().map_err(failed)?;
    drop(first);
    (0..count).map(|_| bind(number, true).map_err(failed)).collect()
}

/// The address of a listener that [`listen`] has opened.
pub fn bound(option: &'static str, address: &Address, listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|cause| Error::Listen { option, address: address.clone(), cause })
}

/// Binds to the first of these that is one of this machine. One that is in use is an error: another would hide that.
fn bind_any(numbers: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &number in numbers {
        match bind(number, false) {
            Err(error) if is_elsewhere(&error) => last = error,
            bound => return bound,
        }
    }
    Err(last)
}

/// Whether an address is none of this machine, or of a version of IP that it does not speak.
fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &Address) -> String {
        listen("pb_listen", address, 1).unwrap_err().to_string()
    }

    #[test]
    fn listeners_share_a_port_with_each_other_and_with_nobody_else() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let listeners = listen("pb_listen", &any, 3).unwrap();
        let address = bound("pb_listen", &any, &listeners[0]).unwrap();
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
        let error = listen("pb_listen", &address.into(), 2).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
        assert!(error.ends_with(": another process listens there; give another port"), "{error}");
    }

    #[test]
    fn listeners_are_named() {
        let any: Address = "localhost:0".parse().unwrap();
        let listeners = listen("pb_listen", &any, 2).unwrap();
        let bound = bound("pb_listen", &any, &listeners[0]).unwrap();
        assert!(bound.ip().is_loopback(), "{bound}");
        assert!(
            refused(&any.with_port(bound.port())).contains("in use"),
            "no other address is taken instead"
        );

        // 192.0.2.0/24 is for documentation: no machine has such an address.
        let error = refused(&"192.0.2.1:1".parse().unwrap());
        assert!(error.starts_with("pb_listen: cannot listen on 192.0.2.1:1: "), "{error}");
        assert!(error.contains(": not an address of this machine; give one of its addresses, "), "{error}");
        let error = refused(&"no-such-host.invalid:1".parse().unwrap());
        let begin = "pb_listen: cannot listen on no-such-host.invalid:1: the name is not resolved (";
        assert!(
            error.starts_with(begin) && error.contains("give a name or an address of this machine"),
            "{error}"
        );
    }

    #[test]
    fn first_address_of_this_machine_is_taken() {
        let [elsewhere, here]: [SocketAddr; 2] =
            ["192.0.2.1:0", "127.0.0.1:0"].map(|number| number.parse().unwrap());
        let taken = bind_any(&[elsewhere, here]).unwrap().local_addr().unwrap();
        assert_eq!(taken.ip(), here.ip());
        assert_eq!(bind_any(&[elsewhere]).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        // A used port is an error: the next address would hide it.
        let other = SocketAddr::from(([127, 0, 0, 2], taken.port()));
        let held = bind(taken, false);
        assert!(held.is_ok(), "nobody holds it any more");
        assert_eq!(bind_any(&[taken, other]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
