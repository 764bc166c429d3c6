//! Listening sockets.

use crate::error::Error;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that the kernel may hold for us before we accept them: a storm of clients that reconnect.
const BACKLOG: i32 = 4096;

/// Opens `count` listeners on one address; with several, the kernel spreads connections over them.
pub fn listen(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, Error> {
    let failed = |cause| Error::Listen { address, cause };
    // Sharing a port would let another process of the same user take half of its connections unnoticed, so
    // first see whether anybody has it.
    let first = bind(address, false).map_err(failed)?;
    if count == 1 {
        return Ok(vec![first]);
    }
    let address = first.local_addr().map_err(failed)?;
    drop(first);
    (0..count).map(|_| bind(address, true).map_err(failed)).collect()
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

    #[test]
    fn listeners_share_a_port_with_each_other_and_with_nobody_else() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = listen(any, 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
        let error = listen(address, 2).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    }
}
