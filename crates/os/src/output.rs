//! The standard streams of the process, which never make their users wait.
//!
//! Nobody can promise that a standard stream takes bytes: a pipe may be full and unread or closed, a terminal stopped
//! or gone, the disk of a log file full or stuck. So users of an [`Output`] put lines into a bounded queue, and one
//! thread writes them.
//!
//! 1. [`Output::write`] appends a text to the queue, or drops and counts it if the queue is full.
//! 2. The writer thread, which starts with the first text, takes all that is queued and writes it. It alone waits.
//! 3. A failed write drops and counts the lines of its batch; the next batch tries again, since a disk may get room.
//! 4. After a whole batch was written again and the queue has room, the thread reports the number of dropped texts
//!    once.
//! 5. [`Output::flush`] waits for the queue to run empty, for a bounded time.
//!
//! Invariants: no user waits for the stream; texts come out whole and in order, or are counted as dropped. Descriptors
//! are inherited, and their flags belong to the shell too: `O_NONBLOCK` is respected, never set.
//!
//! Left out: messages of the C library and of the runtime about a process that is about to abort.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that wait: a second of a busy log at its most verbose level. The batch that is being written may be as large.
pub const QUEUE_BYTES_MAX: usize = 1 << 20;

/// Texts that wait: as many lines of the usual length as fit the bytes.
pub const QUEUE_LINES_MAX: usize = 8_192;

/// The first and the longest pause before a stream is tried again that somebody else has made non-blocking.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// The standard error stream: the log of a node.
pub static STDERR: Output =
    Output::new("annulet-stderr", |bytes| Ok(rustix::io::write(io::stderr(), bytes)?));

/// The standard output stream.
pub static STDOUT: Output =
    Output::new("annulet-stdout", |bytes| Ok(rustix::io::write(io::stdout(), bytes)?));

/// Has the kernel return errors from writes to a terminal of another job and to a file at its size limit
/// (`ulimit -f`), instead of stopping or ending the process.
pub fn ignore_output_signals() {
    for signal in [libc::SIGTTOU, libc::SIGXFSZ] {
        // SAFETY: `signal` sets a disposition of this process and touches no memory of ours; `SIG_IGN` runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// What became of the texts of an output since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputFigures {
    /// Texts that were written by users, dropped ones included.
    pub lines: u64,
    /// Texts that the queue had no room for, and lines of failed writes.
    pub dropped: u64,
}

/// A stream with its queue.
pub struct Output {
    thread_name: &'static str,
    write: fn(&[u8]) -> io::Result<usize>,
    state: Mutex<State>,
    /// The queue has something.
    filled: Condvar,
    /// The queue is empty and nothing is being written.
    drained: Condvar,
    lines: AtomicU64,
    dropped: AtomicU64,
    report: OnceLock<fn(u64)>,
}

struct State {
    queue: LineQueue,
    is_started: bool,
    is_writing: bool,
}

impl Output {
    const fn new(thread_name: &'static str, write: fn(&[u8]) -> io::Result<usize>) -> Output {
        let queue = LineQueue { bytes: Vec::new(), lines: 0, unreported: 0 };
        Output {
            thread_name,
            write,
            state: Mutex::new(State { queue, is_started: false, is_writing: false }),
            filled: Condvar::new(),
            drained: Condvar::new(),
            lines: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            report: OnceLock::new(),
        }
    }

    /// Calls `report` with the number of dropped texts once the stream works again. Only the first call counts.
    pub fn report_drops_by(&self, report: fn(u64)) {
        self.report.get_or_init(|| report);
    }

    /// Queues `text`, which is one line or several whole lines; drops and counts it if the queue is full. Never waits.
    pub fn write(&'static self, text: &[u8]) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        let is_queued = self.is_started(&mut state) && state.queue.push(text);
        drop(state);
        if is_queued {
            self.filled.notify_one();
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything queued was written or has failed, for `longest` at most. Whether it was.
    pub fn flush(&self, longest: Duration) -> bool {
        let end = Instant::now() + longest;
        let mut state = self.lock();
        while state.is_writing || state.queue.lines > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.drained.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// What became of the texts.
    pub fn figures(&self) -> OutputFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OutputFigures { lines: count(&self.lines), dropped: count(&self.dropped) }
    }

    /// Starts the writer thread with the first text. Without a thread everything is dropped and counted.
    fn is_started(&'static self, state: &mut State) -> bool {
        if !state.is_started {
            let thread = thread::Builder::new().name(self.thread_name.to_owned());
            state.is_started = thread.spawn(|| self.run()).is_ok();
        }
        state.is_started
    }

    fn run(&self) {
        let mut batch = Vec::new();
        let mut is_mid_line = false;
        loop {
            let mut lines = self.take(&mut batch);
            if is_mid_line {
                batch.insert(0, b'\n');
            }
            let written = write_all(self.write, &batch);
            let (done, rest) = batch.split_at(written);
            is_mid_line = done.last().map_or(is_mid_line, |&byte| byte != b'\n');
            if rest.is_empty() {
                lines = 0;
            } else {
                lines = lines.min(rest.iter().filter(|&&byte| byte == b'\n').count());
            }
            let unreported = self.finish(lines as u64, rest.is_empty());
            if let Some(report) = self.report.get().filter(|_| unreported > 0) {
                report(unreported);
            }
        }
    }

    /// Waits for texts and moves them to `batch`; how many they are.
    fn take(&self, batch: &mut Vec<u8>) -> usize {
        let mut state = self.lock();
        while state.queue.lines == 0 {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_writing = true;
        state.queue.take(batch)
    }

    /// Ends a batch, of which so many lines could not be written. Returns the number of drops to report.
    fn finish(&self, failed: u64, is_whole: bool) -> u64 {
        self.dropped.fetch_add(failed, Ordering::Relaxed);
        let mut state = self.lock();
        state.is_writing = false;
        state.queue.unreported += failed;
        let reports = is_whole && state.queue.has_room();
        let unreported = if reports { std::mem::take(&mut state.queue.unreported) } else { 0 };
        let is_drained = state.queue.lines == 0;
        drop(state);
        if is_drained {
            self.drained.notify_all();
        }
        unreported
    }

    // No code that can panic runs under this lock, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes `bytes` and returns how many the stream took before it failed, if it did.
fn write_all(write: fn(&[u8]) -> io::Result<usize>, bytes: &[u8]) -> usize {
    let (mut pause, pause_max) = RETRY_PAUSE;
    let mut written = 0;
    while written < bytes.len() {
        match write(&bytes[written..]) {
            Ok(0) => break,
            Ok(some) => {
                written += some;
                pause = RETRY_PAUSE.0;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(pause);
                pause = (2 * pause).min(pause_max);
            }
            Err(_) => break,
        }
    }
    written
}

/// Texts that wait, one behind the other.
struct LineQueue {
    bytes: Vec<u8>,
    lines: usize,
    /// Texts dropped since the last report.
    unreported: u64,
}

impl LineQueue {
    /// Appends a text; false if it was dropped.
    fn push(&mut self, text: &[u8]) -> bool {
        let fits = self.lines < QUEUE_LINES_MAX && self.bytes.len() + text.len() <= QUEUE_BYTES_MAX;
        if fits {
            self.bytes.extend_from_slice(text);
            self.lines += 1;
        } else {
            self.unreported += 1;
        }
        fits
    }

    /// Whether a report will not be dropped itself.
    fn has_room(&self) -> bool {
        self.lines <= QUEUE_LINES_MAX / 2 && self.bytes.len() <= QUEUE_BYTES_MAX / 2
    }

    /// Moves all to `batch`, whose memory is used again; how many texts they are.
    fn take(&mut self, batch: &mut Vec<u8>) -> usize {
        batch.clear();
        std::mem::swap(&mut self.bytes, batch);
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Longer than any of these tests takes.
    const LONG: Duration = Duration::from_secs(60);

    /// A stream that answers each write as the test says.
    struct Script {
        answers: Mutex<Receiver<io::Result<usize>>>,
        written: Mutex<Vec<u8>>,
    }

    impl Script {
        fn new() -> (Script, Sender<io::Result<usize>>) {
            let (tell, answers) = channel();
            (Script { answers: Mutex::new(answers), written: Mutex::default() }, tell)
        }

        /// Waits for the next answer; a number is the most bytes that it takes.
        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.answers.lock().unwrap().recv().unwrap()?.min(bytes.len());
            self.written.lock().unwrap().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn text(&self) -> String {
            String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_queue_is_bounded_in_lines_and_bytes() {
        let mut queue = LineQueue { bytes: Vec::new(), lines: 0, unreported: 0 };
        assert!((0..QUEUE_LINES_MAX).all(|_| queue.push(b"a\n")) && !queue.push(b"b\n"));
        let mut batch = b"before".to_vec();
        assert_eq!((queue.take(&mut batch), batch.len()), (QUEUE_LINES_MAX, 2 * QUEUE_LINES_MAX));
        assert!(queue.push(&vec![b'x'; QUEUE_BYTES_MAX]) && !queue.push(b"c"));
        assert!(queue.unreported == 2 && !queue.has_room());
        queue.take(&mut batch);
        assert!(queue.has_room());
    }

    #[test]
    fn a_stream_that_takes_nothing_delays_no_writer_and_no_stop() {
        static OUTPUT: Output = Output::new("blocked", |_| {
            loop {
                thread::park()
            }
        });
        // One batch is in the hands of the thread, at most; the queue is full behind it.
        (0..3 * QUEUE_LINES_MAX).for_each(|_| OUTPUT.write(b"line\n"));
        let figures = OUTPUT.figures();
        assert_eq!(figures.lines as usize, 3 * QUEUE_LINES_MAX);
        assert!(figures.dropped as usize >= QUEUE_LINES_MAX);
        assert!(!OUTPUT.flush(Duration::from_millis(1)));
    }

    #[test]
    fn a_stream_that_works_again_is_told_how_much_was_dropped() {
        static SCRIPT: OnceLock<Script> = OnceLock::new();
        static OUTPUT: Output = Output::new("failing", |bytes| SCRIPT.get().unwrap().write(bytes));
        let (script, tell) = Script::new();
        assert!(SCRIPT.set(script).is_ok());
        OUTPUT.report_drops_by(|dropped| OUTPUT.write(format!("dropped {dropped}\n").as_bytes()));

        tell.send(Err(ErrorKind::BrokenPipe.into())).unwrap();
        OUTPUT.write(b"one\n");
        assert!(OUTPUT.flush(LONG));
        assert_eq!(OUTPUT.figures(), OutputFigures { lines: 1, dropped: 1 });

        // A part of a line, then no room on the disk.
        tell.send(Ok(2)).unwrap();
        tell.send(Err(ErrorKind::StorageFull.into())).unwrap();
        OUTPUT.write(b"two\n");
        assert!(OUTPUT.flush(LONG));

        for answer in [ErrorKind::Interrupted, ErrorKind::WouldBlock] {
            tell.send(Err(answer.into())).unwrap();
        }
        tell.send(Ok(usize::MAX)).unwrap();
        OUTPUT.write(b"three\n");
        tell.send(Ok(usize::MAX)).unwrap();
        while !SCRIPT.get().unwrap().text().ends_with("dropped 2\n") {
            assert!(OUTPUT.flush(LONG));
            thread::yield_now();
        }
        assert_eq!(SCRIPT.get().unwrap().text(), "tw\nthree\ndropped 2\n");
        assert_eq!(OUTPUT.figures().dropped, 2);
    }
}
