//! Ids that a service's processes took ahead, as segments, within the last minute.

/// A segment counts for so long: what it holds is meant to last about a minute.
pub const SECONDS: u64 = 60;

/// A sliding minute, by second. A clock that stands or goes back counts into the newest second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    seconds: [u64; SECONDS as usize],
    newest: u64,
}

impl Ahead {
    pub(super) fn new(now_ms: u64) -> Self {
        Self { seconds: [0; SECONDS as usize], newest: now_ms / 1_000 }
    }

    fn of(&mut self, second: u64) -> Option<&mut u64> {
        self.seconds.get_mut(usize::try_from(second % SECONDS).unwrap_or(0))
    }

    fn advance(&mut self, now_ms: u64) {
        let now = now_ms / 1_000;
        for second in (self.newest + 1..=now).take(SECONDS as usize) {
            if let Some(count) = self.of(second) {
                *count = 0;
            }
        }
        self.newest = self.newest.max(now);
    }

    /// All that was taken within the last minute.
    pub(super) fn taken(&mut self, now_ms: u64) -> u64 {
        self.advance(now_ms);
        self.seconds.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    pub(super) fn add(&mut self, n: u64, now_ms: u64) {
        self.advance(now_ms);
        let newest = self.newest;
        if let Some(count) = self.of(newest) {
            *count = count.saturating_add(n);
        }
    }

    /// So many were not taken after all: the newest first.
    pub(super) fn give_back(&mut self, mut n: u64) {
        for back in 0..SECONDS.min(self.newest + 1) {
            let second = self.newest - back;
            if let Some(count) = self.of(second) {
                let part = n.min(*count);
                *count -= part;
                n -= part;
            }
        }
    }

    /// Until something that was taken counts no more.
    pub(super) fn wait_ms(&self) -> u64 {
        let oldest = (1..=SECONDS).find(|age| {
            // The second after the newest is the oldest one that still counts.
            let place = (self.newest + age) % SECONDS;
            self.seconds.get(usize::try_from(place).unwrap_or(0)).is_some_and(|n| *n > 0)
        });
        oldest.unwrap_or(1) * 1_000
    }
}
