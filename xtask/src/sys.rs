//! The kernel calls that std does not offer: readiness of sockets, CPU clocks, signals.
//!
//! The only unsafe code of this crate.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// How many ready sockets one wait can tell of: all connections of the widest row but for open loops.
const EVENTS_MAX: usize = 256;

/// A set of sockets that are waited for together, level-triggered and for reading only.
pub struct Poll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    /// An empty set.
    pub fn new() -> io::Result<Poll> {
        // SAFETY: takes no pointer; the result is checked before it is used.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given this descriptor to us, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// Adds a socket, which is known as `token` from now on.
    pub fn add(&self, socket: &impl AsRawFd, token: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token as u64 };
        // SAFETY: both descriptors are open, borrowed for the call; `event` lives through it and is only read.
        checked(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }

    /// Waits until a socket can be read or `timeout` has passed; says how many can. Not in milliseconds, as
    /// `epoll_wait` does: an open loop starts something every few microseconds.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        loop {
            // SAFETY: `events` is EVENTS_MAX initialised entries that the kernel may overwrite during the call;
            // `timeout` lives through it and is only read; no mask of signals is given.
            let ready = checked(unsafe {
                libc::epoll_pwait2(
                    self.fd.as_raw_fd(),
                    self.events.as_mut_ptr(),
                    EVENTS_MAX as i32,
                    &timeout,
                    std::ptr::null(),
                )
            });
            match ready {
                // A signal; not the silence that 0 stands for.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                ready => return Ok(ready?.unsigned_abs() as usize),
            }
        }
    }

    /// The token of the `index`th socket of the last wait.
    pub fn token(&self, index: usize) -> usize {
        self.events[index].u64 as usize
    }
}

/// Waits until a socket takes more, `timeout` at most; whether it does.
pub fn wait_writable(socket: &impl AsRawFd, timeout: Duration) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `entry` is one entry that lives through the call; its descriptor is open, borrowed for the call.
    Ok(checked(unsafe { libc::poll(&mut entry, 1, timeout) })? > 0)
}

/// User and system time of a process so far, threads that have ended included; exact to the nanosecond, where
/// `/proc/PID/stat` counts in hundredths of a second.
pub fn process_cpu(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` lives through the call, which writes one clock id to it.
    match unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &mut clock) } {
        0 => read_clock(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// User and system time of the calling thread so far.
pub fn thread_cpu() -> io::Result<Duration> {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::kill(pid.cast_signed(), signal) }).map(|_| ())
}

/// Whether packages can be installed.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn read_clock(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, which overwrites it.
    checked(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn cpu_clocks_go_on() {
        let (process, thread) = (process_cpu(std::process::id()).unwrap(), thread_cpu().unwrap());
        let mut sum = 0u64;
        while thread_cpu().unwrap() < thread + Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu(std::process::id()).unwrap() >= process + Duration::from_millis(2));
    }

    #[test]
    fn a_poll_tells_which_socket_can_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(there).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mut poll = Poll::new().unwrap();
        poll.add(&far, 42).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 0);
        near.write_all(b"x").unwrap();
        assert_eq!(poll.wait(Duration::from_secs(10)).unwrap(), 1);
        assert_eq!(poll.token(0), 42);
    }
}
