//! The allocator of this program: the system's, with counts for each thread, so that concurrent tests are not counted.
#![allow(unsafe_code, reason = "an allocator is unsafe by its nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct CountingAllocator;

thread_local! {
    static REQUESTED: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The number of bytes that this thread requests during `work`; what a block grows by counts, and not the block again.
pub(crate) fn requested_during(work: impl FnOnce()) -> u64 {
    let before = REQUESTED.get();
    work();
    REQUESTED.get() - before
}

/// The most bytes that this thread holds at once during `work`, in addition to those before.
pub(crate) fn peak_during(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        request(layout.size());
        hold(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        release(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        request(size.saturating_sub(layout.size()));
        // A block that cannot grow in its place is copied: both are held for a moment.
        hold(size);
        release(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

fn request(bytes: usize) {
    REQUESTED.set(REQUESTED.get() + bytes as u64);
}

fn hold(bytes: usize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    // Memory freed by another thread than allocated it may bring the count below zero.
    if held < usize::MAX / 2 && held > PEAK.get() {
        PEAK.set(held);
    }
}

fn release(bytes: usize) {
    HELD.set(HELD.get().wrapping_sub(bytes));
}
