//! Notices that this process is a fork of the one that was given the segments.
//!
//! Purpose: a child inherits the memory of its parent, cursors included; both would issue the same numbers.
//! Each [`Here`] holds one page that the kernel empties in a child (`MADV_WIPEONFORK`, Linux 4.14). Its first
//! word is 1 in the process that made it and 0 in every descendant, so that one load tells them apart, however
//! the fork was made (`fork`, `vfork` without exec, `clone` without shared memory).
//!
//! Invariant: [`Here::is`] is true only in the process that made it. Where the kernel has no such page the
//! process id is compared: a system call per look, and right as long as no descendant has the same id (it can
//! only have it after the maker ended).
//!
//! This is the only file of the client with `unsafe`, and the only one with an atomic: the word is read by
//! every thread, and written once before anybody else can see it.
//!
//! Absent on purpose: what a child does then (see `process`), `pthread_atfork` (it misses a direct `clone`), and
//! copies of a whole machine: those are found out by the chain token at their next request.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// One page that a child finds empty.
struct Page {
    start: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: `start` points to a mapping of `len` bytes that lives as long as the `Page`. Its first word is only
// ever accessed as an `AtomicU32` through shared references, which may be used from every thread; the pointer
// itself never changes.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A page whose word is 1 here and 0 in children; `None` where the kernel cannot do it.
    #[cfg(target_os = "linux")]
    fn new() -> Option<Page> {
        // SAFETY: `sysconf` has no preconditions.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok().filter(|len| *len >= 4)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous private mapping at an address of the kernel's choice touches nothing that is.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // From here on dropped, and so unmapped, on every way out. A mapping begins at a page, so it is aligned
        // for a word, and the kernel fills it with zeros: a valid `AtomicU32`.
        let page = Page { start: NonNull::new(start.cast())?, len };
        // SAFETY: the whole of our own mapping; the advice changes only what children see of it.
        let advised = unsafe { libc::madvise(start, len, libc::MADV_WIPEONFORK) };
        if advised != 0 {
            return None;
        }
        page.word().store(1, Ordering::Release);
        Some(page)
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> Option<Page> {
        None
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: `start` is aligned, points to an initialised word (see `new`), and is mapped while `self` lives,
        // in a child too: there the page is emptied, not unmapped.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any more. A child that drops its inherited copy unmaps
        // its own copy of the mapping.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The process that made this; see the module.
pub(crate) struct Here {
    page: Option<Page>,
    pid: u32,
}

impl Here {
    /// This process.
    pub(crate) fn new() -> Here {
        Here { page: Page::new(), pid: std::process::id() }
    }

    /// Whether this is the process that made it, and no fork of it.
    #[inline]
    pub(crate) fn is(&self) -> bool {
        match &self.page {
            // A child has a single thread when it begins, which saw the fork: no ordering is needed.
            Some(page) => page.word().load(Ordering::Relaxed) == 1,
            None => std::process::id() == self.pid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_here_and_pages_come_and_go() {
        let all: Vec<Here> = (0..1_000).map(|_| Here::new()).collect();
        assert!(all.iter().all(Here::is));
        drop(all);
        assert!(Here { page: None, pid: std::process::id() }.is());
        assert!(!Here { page: None, pid: std::process::id().wrapping_add(1) }.is());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_kernel_has_the_page() {
        assert!(Here::new().page.is_some());
    }
}
