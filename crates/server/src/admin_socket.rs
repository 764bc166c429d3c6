//! The local socket of a node: HTTP for administration, in the data folder, for the command line of the same machine.
//!
//! 1. The node binds the file `admin.sock` once it holds the lock of the data folder. A file that is there is of a
//!    process that is gone, and is replaced.
//! 2. The file is for the node's user alone, from before the first connection. The kernel tells the user at the other
//!    end, which must be the node's own or root.
//! 3. Connections are served as those of HTTP, with the rights of [`security::LOCAL_PERMISSIONS`] and without a login.
//! 4. A clean stop removes the file, before it gives the lock back.
//!
//! A path in a socket's address has 107 bytes at most, and that of a data folder may be longer. So the folder is
//! opened, and the address names the file by the descriptor of the folder.
//!
//! Left out: objects, which need a login, and file systems without sockets. A node on such a file system warns and
//! serves without the socket.

use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The name of the file.
const NAME: &str = "admin.sock";

/// Connections by the socket at a time: each command has one. Others wait in the kernel.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// Connections that the kernel may hold.
const BACKLOG: i32 = 64;

/// Access for the node's user alone.
const MODE: u32 = 0o600;

/// The file of the socket, which is removed with this.
pub(crate) struct AdminSocketFile(PathBuf);

impl Drop for AdminSocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, "the local socket is gone already");
        }
    }
}

/// Listens in a data folder, whose lock the caller holds.
///
/// # Errors
/// A file system without sockets, and a folder that cannot be written.
pub(crate) fn listen(data: &Path) -> io::Result<(UnixListener, AdminSocketFile)> {
    let folder = File::open(data)?;
    let path = path_in(&folder);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }

    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&path)?)?;
    // Nobody can connect before the socket listens.
    fs::set_permissions(&path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), AdminSocketFile(data.join(NAME))))
}

/// Connects to the node that runs on a data folder.
///
/// # Errors
/// `NotFound` and `ConnectionRefused` if no node runs there, `PermissionDenied` for users other than the node's.
pub fn connect(data: &Path) -> io::Result<UnixStream> {
    let folder = File::open(data)?;
    UnixStream::connect(path_in(&folder))
}

/// Whether a user may administer the node by the socket.
pub(crate) fn may_administer(uid: u32) -> bool {
    is_admin(uid, geteuid().as_raw())
}

/// Whether a user is the node's own, or root.
fn is_admin(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

/// The name of the file by the descriptor of its open folder.
fn path_in(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_socket_of_a_dead_node_is_replaced_and_a_long_path_is_none_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("d".repeat(200));
        fs::create_dir(&data).unwrap();
        assert_eq!(connect(&data).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (listener, file) = listen(&data).unwrap();
        // As a killed process leaves it.
        std::mem::forget(file);
        drop(listener);
        assert_eq!(connect(&data).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);

        let (_listener, file) = listen(&data).unwrap();
        assert!(connect(&data).is_ok());
        assert_eq!(fs::metadata(data.join(NAME)).unwrap().mode() & 0o777, MODE);
        drop(file);
        assert_eq!(connect(&data).unwrap_err().kind(), io::ErrorKind::NotFound, "it is removed at a stop");
    }

    #[test]
    fn only_root_and_the_own_user_administer() {
        assert!(is_admin(0, 1000) && is_admin(1000, 1000) && !is_admin(1001, 1000) && !is_admin(1000, 0));
        assert!(may_administer(geteuid().as_raw()));
    }
}
