//! A page of a scan over several stores: what each of them has is read ahead, and visited in the order of keys.
//!
//! 1. Each store is asked for some keys and heads, from where the visitor is.
//! 2. The visitor sees the least of all that was read, as long as each store has something left, or nothing more.
//! 3. A store whose keys are used up is asked for more: for twice as many, if all were visited, and for few where the
//!    visitor has leapt over some. What is left when the page is full is read again for the next page.
//!
//! Each key is visited as it was at some moment since the scan was asked for, as in a scan over one backend.
//!
//! Left out: leaping within what a store reads. A visitor that takes one key of each bucket has a few keys of each read
//! for nothing.

use bytes::Bytes;
use engine::fold::{PAGE_BYTES_MAX, ScanPage, ScanRequest, Visit};
use std::collections::VecDeque;

/// Keys that a store is asked for at first, and after a leap: a leap may leave so many unvisited.
const READ_MIN: usize = 32;

/// Keys that a store is asked for at most: what is visited between two reads costs a shard a fraction of a millisecond.
const READ_MAX: usize = 1024;

/// A page that is being read.
pub struct Merge {
    request: ScanRequest,
    page: ScanPage,
    bytes: usize,
    /// The first key that was not visited.
    at: Bytes,
    parts: Vec<Part>,
}

/// What is known of one store.
struct Part {
    read: VecDeque<(Bytes, Bytes)>,
    /// Where it is read on; `None` if it has nothing more.
    next: Option<Bytes>,
    count: usize,
    is_reading: bool,
}

/// How a page goes on.
pub enum Step {
    /// When these stores have been read, from a key on, so many keys each.
    Read(Vec<(usize, ScanRequest)>),
    /// When what is being read has come.
    Wait,
    /// It is done.
    Done(ScanPage),
}

impl Merge {
    /// A page of so many stores.
    pub fn new(request: ScanRequest, stores: usize) -> Merge {
        let at = request.start.clone();
        let part =
            || Part { read: VecDeque::new(), next: Some(at.clone()), count: READ_MIN, is_reading: false };
        let parts = (0..stores).map(|_| part()).collect();
        Merge { request, page: ScanPage::default(), bytes: 0, at, parts }
    }

    /// Takes what a store has read.
    pub fn take(&mut self, store: usize, page: ScanPage) {
        self.page.has_left_out |= page.has_left_out;
        let part = &mut self.parts[store];
        (part.read, part.next, part.is_reading) = (page.items.into_iter().collect(), page.next, false);
    }

    /// Goes as far as what was read reaches.
    pub fn step(&mut self) -> Step {
        loop {
            self.leave_behind();
            let is_used_up = |part: &Part| part.read.is_empty() && part.next.is_some();
            if self.parts.iter().any(is_used_up) {
                return self.read_on();
            }
            let least = (0..self.parts.len())
                .filter_map(|store| Some((self.parts[store].read.front()?.0.clone(), store)))
                .min();
            let Some((key, store)) = least else { return Step::Done(std::mem::take(&mut self.page)) };
            if self.page.items.len() >= self.request.items_max || self.bytes >= PAGE_BYTES_MAX {
                self.page.next = Some(key);
                return Step::Done(std::mem::take(&mut self.page));
            }
            let head = self.parts[store].read.pop_front().map(|(_, head)| head).unwrap_or_default();
            self.visit(key, head);
        }
    }

    fn visit(&mut self, key: Bytes, head: Bytes) {
        let visit = (self.request.visitor)(&key, &head);
        if let Visit::Seek(to) | Visit::TakeAndSeek(to) = &visit
            && **to > *key
        {
            self.at = Bytes::copy_from_slice(to);
        }
        if matches!(visit, Visit::Take | Visit::TakeAndSeek(_)) {
            self.bytes += key.len() + head.len();
            self.page.items.push(&key, &head);
        }
    }

    /// Forgets what was read and lies before the place where it goes on.
    fn leave_behind(&mut self) {
        let (at, end) = (&self.at, &self.request.end);
        for part in &mut self.parts {
            while part.read.pop_front_if(|(key, _)| *key < *at).is_some() {
                part.count = READ_MIN;
            }
            if part.next.as_ref().is_some_and(|next| next.max(at) >= end) {
                part.next = None;
            }
            if at >= end {
                part.read.clear();
            }
        }
    }

    fn read_on(&mut self) -> Step {
        let mut reads = Vec::new();
        for (store, part) in self.parts.iter_mut().enumerate() {
            let Some(next) = part.next.as_ref().filter(|_| part.read.is_empty() && !part.is_reading) else {
                continue;
            };
            let request = ScanRequest {
                start: next.max(&self.at).clone(),
                end: self.request.end.clone(),
                items_max: part.count,
                visitor: Box::new(|_, _| Visit::Take),
                past_losses: self.request.past_losses,
            };
            part.count = (part.count * 2).min(READ_MAX);
            part.is_reading = true;
            reads.push((store, request));
        }
        if reads.is_empty() { Step::Wait } else { Step::Read(reads) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::three_of_ten;
    use super::*;
    use std::collections::BTreeMap;

    type Map = BTreeMap<Bytes, Bytes>;

    /// A store's answer.
    fn page_of(map: &Map, request: &ScanRequest) -> ScanPage {
        let mut range = map.range(request.start.clone()..request.end.clone());
        let copy = |(key, head): (&Bytes, &Bytes)| (key.clone(), head.clone());
        let items = range.by_ref().take(request.items_max).map(copy).collect();
        ScanPage { items, next: range.next().map(|(key, _)| key.clone()), has_left_out: false }
    }

    fn read(maps: &[Map], visits: fn(&[u8]) -> Visit, items_max: usize) -> (Vec<Bytes>, usize) {
        let (mut seen, mut reads, end) = (Vec::new(), 0, Bytes::from_static(b"9"));
        let mut start = Some(Bytes::from_static(b"0"));
        while let Some(from) = start.take() {
            let visitor = Box::new(move |key: &[u8], _: &[u8]| visits(key));
            let request =
                ScanRequest { start: from, end: end.clone(), items_max, visitor, past_losses: false };
            let mut merge = Merge::new(request, maps.len());
            let page = loop {
                match merge.step() {
                    Step::Done(page) => break page,
                    Step::Wait => unreachable!("all that was asked for has come"),
                    // The last one asked answers first.
                    Step::Read(asked) => {
                        for (store, request) in asked.into_iter().rev() {
                            reads += 1;
                            merge.take(store, page_of(&maps[store], &request));
                        }
                    }
                }
            };
            assert!(page.items.len() == items_max || page.next.is_none());
            seen.extend(page.items.into_iter().map(|(key, _)| key));
            start = page.next;
        }
        (seen, reads)
    }

    #[test]
    fn keys_come_in_their_order_and_once() {
        for stores in 1..4 {
            let mut maps = vec![Map::new(); stores];
            for number in 0..3000 {
                let key = Bytes::from(format!("{number:04}"));
                maps[number / 7 % stores].insert(key, Bytes::from_static(b"head"));
            }
            let all: Vec<Bytes> = (0..3000).map(|number| Bytes::from(format!("{number:04}"))).collect();
            for items_max in [1000, 7, 5000] {
                assert_eq!(read(&maps, |_| Visit::Take, items_max).0, all);
                let wanted = |key: &&Bytes| matches!(three_of_ten(key), Visit::Take | Visit::TakeAndSeek(_));
                assert_eq!(
                    read(&maps, three_of_ten, items_max).0,
                    all.iter().filter(wanted).cloned().collect::<Vec<_>>()
                );
            }
            let (_, reads) = read(&maps, |_| Visit::Take, 5000);
            assert!(reads <= 8 * stores, "what is read on doubles: {reads} reads of {stores} stores");
        }
    }

    #[test]
    fn a_leap_over_the_end_reads_nothing_more() {
        let many = |from: u32| {
            (from..from + 5000).map(|it| (Bytes::from(format!("{it:04}")), Bytes::new())).collect()
        };
        let (seen, reads) = read(&[many(0), many(2)], |_| Visit::TakeAndSeek(b"9".to_vec()), 10);
        assert_eq!((seen.len(), reads), (1, 2));
    }
}
