//! A worker: one thread, its driver, and the operations it has under way.
//!
//! In each turn: what follows an answer (the write of an update, a second look, another attempt) goes out first; then
//! what is due, or in a closed loop as many as there is room for; then answers are awaited. When the load has ended the
//! worker awaits what is outstanding, reads some of what it has written once more, and looks for the last time at what
//! was suspect. If nobody is left to be asked, it gives that up.

use super::control::Control;
use super::pace::Pace;
use super::resume::State as Resume;
use super::sampler::Sample;
use super::state::State;
use super::tally::WorkerSecond;
use crate::Error;
use crate::driver::Driver;
use results::ErrorRecord;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A worker looks at its surroundings so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What workers and the sampler tell the collector.
pub enum Message {
    /// A second is over.
    Second(Box<WorkerSecond>),
    /// Something went wrong.
    Error(Box<ErrorRecord>),
    /// Whole lines of the history.
    History(Vec<u8>),
    /// The worker of this number has nothing left to do, or cannot go on.
    Ended(usize, Result<(), Error>),
    /// The sampler's second.
    Sample(Box<Sample>),
    /// No sample follows.
    SamplerEnded,
}

/// A worker.
pub struct Worker<'a> {
    pub driver: Box<dyn Driver + Send>,
    pub state: State<'a>,
    pub pace: Pace,
    /// Operations that it may begin.
    pub budget: u64,
    /// Workers that have a share of the mix and go on; jobs end with them.
    pub mixing: &'a AtomicUsize,
    /// Whether it is none of them, or not any more.
    pub is_job: bool,
    pub control: &'a Control,
    pub out: Sender<Message>,
    /// An operation that is not answered in this time has failed.
    pub timeout: Duration,
}

impl Worker<'_> {
    /// Works until there is nothing left to do.
    pub fn run(mut self, resume: &Resume) {
        // An operation that is due in 20 us is not to wait for the usual 50 us of grace.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000)).ok();
        let done = self.work();
        self.leave_mix();
        self.state.end();
        self.state.save(resume);
        let done = done.and_then(|()| self.driver.finish());
        // Nobody listens only where the collector has failed, which it tells itself.
        self.out.send(Message::Ended(self.state.worker as usize, done)).ok();
    }

    fn work(&mut self) -> Result<(), Error> {
        let mut blocked = false;
        // How many answers there were when the driver had room last, or an answer came, and when that was.
        let mut heard = (u64::MAX, 0);
        loop {
            self.state.tick();
            let now = self.state.now;
            self.follow_up(now)?;
            let is_running = self.is_running(now);
            let mut wait = LOOK_EVERY;
            if is_running {
                blocked = self.start_due(now, blocked)?;
                wait = self.until_due(blocked);
            } else {
                self.leave_mix();
                self.state.end_load();
                if self.is_alone(&mut heard, now) {
                    self.state.give_up();
                }
                if self.state.is_idle() {
                    if !self.state.begin_audit() {
                        return Ok(());
                    }
                    // Its reads go out in the next turn: no answer is to be awaited before.
                    wait = Duration::ZERO;
                }
            }
            if let Some(at) = self.state.next_later() {
                wait = wait.min(Duration::from_nanos(at.saturating_sub(now)));
            }
            self.driver.poll(wait, &mut self.state)?;
        }
    }

    fn is_running(&self, now: u64) -> bool {
        let end = self.control.end_ns.load(Ordering::Relaxed);
        let others_go_on = !self.is_job || self.mixing.load(Ordering::Relaxed) > 0;
        let may_go_on = now < end && others_go_on && !self.control.is_stopped();
        may_go_on && self.budget > 0 && !self.state.is_exhausted()
    }

    /// Whether, for so long that whatever is under way has ended, there was neither an answer nor room for a request:
    /// no server takes connections.
    fn is_alone(&self, heard: &mut (u64, u64), now: u64) -> bool {
        if self.driver.ready() > 0 || heard.0 != self.state.answers {
            *heard = (self.state.answers, now);
        }
        Duration::from_nanos(now - heard.1) > 2 * self.timeout
    }

    /// It begins no operation any more.
    fn leave_mix(&mut self) {
        if !std::mem::replace(&mut self.is_job, true) {
            self.mixing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What goes on with operations that have begun.
    fn follow_up(&mut self, now: u64) -> Result<(), Error> {
        while self.driver.ready() > 0 {
            let Some(token) = self.state.next_follow_up(now) else { return Ok(()) };
            self.state.tick();
            self.state.submit(token, &mut *self.driver)?;
        }
        Ok(())
    }

    /// Starts what is due. Whether something is due that there is no room for.
    fn start_due(&mut self, now: u64, was_blocked: bool) -> Result<bool, Error> {
        while self.budget > 0 && !self.state.is_exhausted() {
            let due = self.pace.due();
            if due.is_some_and(|due| due > now) {
                return Ok(false);
            }
            if self.driver.ready() == 0 || !self.state.has_room() {
                self.state.tally.backlog = self.pace.backlog(now);
                return Ok(due.is_some());
            }
            self.state.tick();
            let at = due.unwrap_or(self.state.now);
            if due.is_some() {
                let late = self.state.now - at;
                self.state.tally.due += 1;
                match was_blocked {
                    true => self.state.tally.exhausted = true,
                    false => self.state.tally.late_ns = self.state.tally.late_ns.max(late),
                }
                self.pace.advance(&mut self.state.rng);
            }
            if let Some(token) = self.state.start(at) {
                self.budget -= 1;
                self.state.submit(token, &mut *self.driver)?;
            } else if due.is_none() {
                // Nothing that could be asked for yet.
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn until_due(&mut self, blocked: bool) -> Duration {
        self.state.tick();
        match self.pace.due() {
            Some(due) if !blocked => Duration::from_nanos(due.saturating_sub(self.state.now)).min(LOOK_EVERY),
            _ => LOOK_EVERY,
        }
    }
}
