// SPDX-License-Identifier: GPL-2.0

//! Sorting in place. Lists of user space may be long, and may be in any order.

/// Sorts by `key`, in no order where keys are equal: a heap sort. Allocates nothing; as fast in the worst case as else.
pub(super) fn sort_by_key<T, K: PartialOrd>(list: &mut [T], key: impl Fn(&T) -> K) {
    let key_at = |list: &[T], at: usize| list.get(at).map(&key);
    let sift = |list: &mut [T], mut at: usize, end: usize| loop {
        let mut child = 2 * at + 1;
        if child >= end {
            return;
        }
        if child + 1 < end && key_at(list, child) < key_at(list, child + 1) {
            child += 1;
        }
        if key_at(list, at) >= key_at(list, child) {
            return;
        }
        // PANIC: Both are below `end`, which is at most the length.
        list.swap(at, child);
        at = child;
    };
    let len = list.len();
    for at in (0..len / 2).rev() {
        sift(list, at, len);
    }
    for end in (1..len).rev() {
        // PANIC: Below the length.
        list.swap(0, end);
        sift(list, 0, end);
    }
}
