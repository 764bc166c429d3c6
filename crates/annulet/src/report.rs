//! Standard output of a command whose exit code is its result: `annulet check DIR | head`.
//!
//! When its reader leaves, the command goes on without one: the exit code still tells damage, and a repair does not
//! stop in the middle.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Standard output that may lose its reader. Other errors are the command's.
pub struct Report<W> {
    out: W,
    is_read: bool,
}

impl Report<StdoutLock<'static>> {
    /// That of this process.
    pub fn of_stdout() -> Self {
        Report { out: io::stdout().lock(), is_read: true }
    }
}

impl<W: Write> Report<W> {
    /// Does something with the output; `left` is the result once the reader has left.
    fn unless_left<T>(&mut self, left: T, act: impl FnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        if !self.is_read {
            return Ok(left);
        }
        match act(&mut self.out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_read = false;
                Ok(left)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for Report<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_left(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_left((), W::flush)
    }
}
