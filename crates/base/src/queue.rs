//! A queue that has a bound and says so.

use std::collections::VecDeque;

/// What a full queue gives back: the item that did not fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// First in, first out, never more than its bound. Memory is taken as items come, not for the bound.
#[derive(Debug)]
pub struct BoundedQueue<T> {
    items: VecDeque<T>,
    items_max: usize,
}

impl<T> BoundedQueue<T> {
    /// An empty queue for at most `items_max` items.
    pub fn new(items_max: usize) -> BoundedQueue<T> {
        assert!(items_max > 0, "a queue that can hold nothing");
        BoundedQueue { items: VecDeque::new(), items_max }
    }

    /// Appends `item`, or gives it back when the queue is full.
    pub fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if self.items.len() == self.items_max {
            return Err(Full(item));
        }
        self.items.push_back(item);
        Ok(())
    }

    /// The oldest item, removed.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_refuses_what_does_not_fit_and_keeps_order() {
        let mut queue = BoundedQueue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(Full(3)));
        assert_eq!((queue.pop(), queue.len()), (Some(1), 1));
        assert_eq!(queue.push(3), Ok(()));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(2), Some(3), None));
        assert!(queue.is_empty());
    }
}
