//! Many ids at a time for one thread that prefers speed to a strict order across threads.
//!
//! Invariant: every ordinal comes from a range that [`Cursor::next_n`] gave to this handle alone; within one
//! handle ordinals rise. What a handle that is dropped had left is a gap, at most one chunk.
//!
//! The path of one id is a comparison and an increment of two numbers that a loop keeps in registers. So whatever
//! fetches the next chunk is out of line and *returns* it: given a `&mut self` to fill in, it would force both
//! numbers into memory at every id, at half the speed.
//!
//! Absent on purpose: atomics (the cursor has them), sharing (each thread makes its own), and knowledge of forks
//! (a handle that may cross one looks before each [`Chunk::pop`]).

use std::num::NonZeroU64;

use crate::range::Range;
use crate::segment::Cursor;

/// Ordinals that one thread holds, and gives out one by one. It begins empty, and is not cloned: both would give
/// out the same.
#[derive(Debug, Default)]
pub struct Chunk {
    next: u64,
    end: u64,
}

impl Chunk {
    /// The next ordinal; `None` when all are given out.
    #[inline]
    pub const fn pop(&mut self) -> Option<u64> {
        if self.next == self.end {
            return None;
        }
        let ordinal = self.next;
        self.next += 1;
        Some(ordinal)
    }

    /// How many are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.end - self.next
    }
}

impl From<Range> for Chunk {
    fn from(range: Range) -> Self {
        Self { next: range.lo(), end: range.hi() }
    }
}

/// Ordinals for one thread, taken from the shared cursor `size` at a time.
#[derive(Debug)]
pub struct Chunks<'c> {
    cursor: &'c Cursor,
    size: NonZeroU64,
    chunk: Chunk,
}

impl<'c> Chunks<'c> {
    /// A handle that takes up to `size` ordinals at a time: the most that is lost when it is dropped, and about
    /// what other threads may be ahead.
    #[must_use]
    pub const fn new(cursor: &'c Cursor, size: NonZeroU64) -> Self {
        Self { cursor, size, chunk: Chunk { next: 0, end: 0 } }
    }

    /// What this handle holds and has not given out.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.chunk.left()
    }
}

/// The next chunk; see the module for why it stands outside of the handle.
#[cold]
#[inline(never)]
fn fetch(cursor: &Cursor, size: NonZeroU64) -> Option<Range> {
    cursor.next_n(size.get())
}

impl Iterator for Chunks<'_> {
    type Item = u64;

    /// The next ordinal; `None` when the cursor has nothing just now. Asking again later may give more.
    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.chunk.left() == 0 {
            self.chunk = fetch(self.cursor, self.size)?.into();
        }
        self.chunk.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    #[test]
    fn two_handles_share_a_segment_to_its_last_ordinal() {
        let cursor = Cursor::new();
        cursor.install(Range::new(0, 10).unwrap()).unwrap();
        let (mut a, mut b) = (Chunks::new(&cursor, size(4)), Chunks::new(&cursor, size(4)));
        assert_eq!((a.next(), b.next(), a.next()), (Some(0), Some(4), Some(1)));
        assert_eq!((a.held(), b.held()), (2, 3));
        assert_eq!(b.by_ref().collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        assert_eq!(a.by_ref().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((a.next(), b.next()), (None, None));
        cursor.install(Range::new(20, 22).unwrap()).unwrap();
        assert_eq!(a.by_ref().collect::<Vec<_>>(), [20, 21], "it goes on when there is more");
    }

    #[test]
    fn threads_with_handles_of_their_own_repeat_nothing_and_rise() {
        let cursor = Cursor::new();
        cursor.install(Range::new(0, 100_000).unwrap()).unwrap();
        cursor.install(Range::new(200_000, 300_000).unwrap()).unwrap();
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let take = || Chunks::new(&cursor, size(64)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), count), (200_000, 200_000));
    }
}
