// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the memory of a lane must hold: pages, what they show, and every byte of it. It knows neither the kernel nor a GPU.
//!
//! A page shows nothing, content of its own, or a page of a file that others may show, too. Content that was offered to
//! the kernel (MADV_FREE) is what it was or zero, until it is written and looked at.

use rkfd::sys::PAGE;

/// Bytes of a part of a page that only one party writes in a round.
pub const STRIPE: usize = 256;
/// Such parts of a page.
pub const STRIPES: usize = PAGE / STRIPE;

/// What a program, and with it the GPU, may do with a page.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// The other content that a page may have since MADV_FREE.
#[derive(Clone, Debug)]
struct Freed {
    /// Zeroes, with what was written since.
    zeroed: Box<[u8]>,
    /// Something was: one of both contents is there, and stays.
    written: bool,
    /// It was seen that the old content is gone.
    gone: bool,
}

#[derive(Clone, Debug)]
struct Content {
    bytes: Box<[u8]>,
    freed: Option<Freed>,
}

impl Content {
    fn zero() -> Self {
        Self {
            bytes: zeroes(),
            freed: None,
        }
    }
}

fn zeroes() -> Box<[u8]> {
    vec![0; PAGE].into_boxed_slice()
}

#[derive(Clone, Debug)]
enum Home {
    Private(Content),
    /// A page of the file.
    Shared(usize),
}

#[derive(Clone, Debug)]
struct Slot {
    home: Home,
    access: Access,
}

/// A byte that is not what it must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wrong {
    /// Where in the page.
    pub offset: usize,
    /// What it must be.
    pub wanted: u8,
    /// What it is.
    pub found: u8,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            offset,
            wanted,
            found,
        } = self;
        write!(f, "byte {offset:#x} is {found:#04x}, not {wanted:#04x}")
    }
}

/// The first byte in which two contents differ.
fn difference(wanted: &[u8], found: &[u8]) -> Option<Wrong> {
    if wanted == found {
        return None;
    }
    let differs = wanted.iter().zip(found).position(|(w, f)| w != f);
    // Of different lengths: the first byte that is not there counts as zero.
    let offset = differs.unwrap_or(wanted.len().min(found.len()));
    Some(Wrong {
        offset,
        wanted: wanted.get(offset).copied().unwrap_or(0),
        found: found.get(offset).copied().unwrap_or(0),
    })
}

/// The memory of a lane. Page numbers count from its first page.
#[derive(Clone, Debug)]
pub struct Shadow {
    slots: Vec<Option<Slot>>,
    file: Vec<Content>,
}

impl Shadow {
    /// `pages` pages that show nothing, and a file of `file` pages of zeroes.
    pub fn new(pages: usize, file: usize) -> Self {
        Self {
            slots: vec![None; pages],
            file: vec![Content::zero(); file],
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.slots.len()
    }

    /// Pages of the file.
    pub fn file_pages(&self) -> usize {
        self.file.len()
    }

    fn slot(&self, page: usize) -> Option<&Slot> {
        self.slots.get(page)?.as_ref()
    }

    fn content(&self, page: usize) -> Option<&Content> {
        match &self.slot(page)?.home {
            Home::Private(content) => Some(content),
            Home::Shared(at) => self.file.get(*at),
        }
    }

    fn content_mut(&mut self, page: usize) -> Option<&mut Content> {
        match &mut self.slots.get_mut(page)?.as_mut()?.home {
            Home::Private(content) => Some(content),
            Home::Shared(at) => self.file.get_mut(*at),
        }
    }

    /// Whether a page shows anything.
    pub fn mapped(&self, page: usize) -> bool {
        self.slot(page).is_some()
    }

    /// What may be done with a page; one that shows nothing has no access.
    pub fn access(&self, page: usize) -> Access {
        self.slot(page).map_or(Access::None, |slot| slot.access)
    }

    /// The page of the file that a page shows.
    pub fn shared(&self, page: usize) -> Option<usize> {
        match self.slot(page)?.home {
            Home::Private(_) => None,
            Home::Shared(at) => Some(at),
        }
    }

    /// Whether a page shows content of its own.
    pub fn private(&self, page: usize) -> bool {
        matches!(self.slot(page), Some(slot) if matches!(slot.home, Home::Private(_)))
    }

    /// Whether its content is not known for certain.
    pub fn unsure(&self, page: usize) -> bool {
        self.content(page).is_some_and(|c| c.freed.is_some())
    }

    /// The bytes of a page whose content is certain.
    pub fn bytes(&self, page: usize) -> Option<&[u8]> {
        let content = self.content(page)?;
        content.freed.is_none().then_some(&content.bytes)
    }

    /// New memory of the program's own takes the place of what was there.
    pub fn map_private(&mut self, first: usize, count: usize, access: Access) {
        for slot in self.slots.iter_mut().skip(first).take(count) {
            *slot = Some(Slot {
                home: Home::Private(Content::zero()),
                access,
            });
        }
    }

    /// The file from page `from` on takes the place of what was there.
    pub fn map_shared(&mut self, first: usize, count: usize, from: usize, access: Access) {
        for (n, slot) in self.slots.iter_mut().skip(first).take(count).enumerate() {
            *slot = Some(Slot {
                home: Home::Shared(from + n),
                access,
            });
        }
    }

    /// The pages show nothing any more. What is in the file stays there.
    pub fn unmap(&mut self, first: usize, count: usize) {
        for slot in self.slots.iter_mut().skip(first).take(count) {
            *slot = None;
        }
    }

    /// What may be done with the pages from now on.
    pub fn protect(&mut self, first: usize, count: usize, access: Access) {
        for slot in self.slots.iter_mut().skip(first).take(count).flatten() {
            slot.access = access;
        }
    }

    /// What the pages show moves to others; the ranges do not overlap.
    pub fn relocate(&mut self, from: usize, count: usize, to: usize) {
        for n in 0..count {
            let moved = self.slots.get_mut(from + n).and_then(Option::take);
            if let Some(slot) = self.slots.get_mut(to + n) {
                *slot = moved;
            }
        }
    }

    /// MADV_DONTNEED: content of the program's own becomes zero.
    pub fn discard(&mut self, first: usize, count: usize) {
        for slot in self.slots.iter_mut().skip(first).take(count).flatten() {
            if let Home::Private(content) = &mut slot.home {
                *content = Content::zero();
            }
        }
    }

    /// MADV_FREE: content of the program's own is what it was, or zero. It is certain now.
    pub fn free(&mut self, first: usize, count: usize) {
        for slot in self.slots.iter_mut().skip(first).take(count).flatten() {
            if let Home::Private(content) = &mut slot.home {
                content.freed = Some(Freed {
                    zeroed: zeroes(),
                    written: false,
                    gone: false,
                });
            }
        }
    }

    /// A hole is punched into the file.
    pub fn punch(&mut self, first: usize, count: usize) {
        for content in self.file.iter_mut().skip(first).take(count) {
            *content = Content::zero();
        }
    }

    fn change(&mut self, page: usize, mut change: impl FnMut(&mut [u8])) {
        if let Some(content) = self.content_mut(page) {
            change(&mut content.bytes);
            if let Some(freed) = &mut content.freed {
                change(&mut freed.zeroed);
                freed.written = true;
            }
        }
    }

    /// Bytes are stored.
    pub fn write(&mut self, page: usize, offset: usize, data: &[u8]) {
        self.change(page, |bytes| {
            if let Some(part) = bytes.get_mut(offset..offset + data.len()) {
                part.copy_from_slice(data);
            }
        });
    }

    /// An atomic addition of 64 bits.
    pub fn add(&mut self, page: usize, offset: usize, value: u64) {
        self.change(page, |bytes| {
            if let Some(part) = bytes.get_mut(offset..offset + 8) {
                let mut old = [0; 8];
                old.copy_from_slice(part);
                let sum = u64::from_le_bytes(old).wrapping_add(value);
                part.copy_from_slice(&sum.to_le_bytes());
            }
        });
    }

    /// Compares all of a page with what was found there when nobody wrote, and learns what became of it.
    pub fn judge(&mut self, page: usize, found: &[u8]) -> Result<(), Wrong> {
        let Some(content) = self.content_mut(page) else {
            return Ok(());
        };
        let old = difference(&content.bytes, found);
        let Some(freed) = &mut content.freed else {
            return old.map_or(Ok(()), Err);
        };
        let zero = difference(&freed.zeroed, found);
        if old.is_none() && !freed.gone {
            if freed.written {
                content.freed = None;
            }
            return Ok(());
        }
        match zero {
            None if freed.written => {
                content.bytes = std::mem::take(&mut freed.zeroed);
                content.freed = None;
                Ok(())
            }
            None => {
                freed.gone = true;
                Ok(())
            }
            Some(wrong) => Err(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: u8) -> Vec<u8> {
        vec![value; PAGE]
    }

    fn with(value: u8, offset: usize, other: u8) -> Vec<u8> {
        let mut bytes = page(value);
        bytes[offset] = other;
        bytes
    }

    #[test]
    fn a_page_is_what_was_written_last() {
        let mut shadow = Shadow::new(4, 0);
        shadow.map_private(1, 2, Access::Write);
        assert_eq!(shadow.judge(1, &page(0)), Ok(()));
        shadow.write(1, 100, &[7]);
        shadow.add(1, 104, u64::MAX);
        shadow.add(1, 104, 3);
        let mut wanted = with(0, 100, 7);
        wanted[104] = 2;
        assert_eq!(shadow.judge(1, &wanted), Ok(()));
        let wrong = Wrong {
            offset: 104,
            wanted: 2,
            found: 1,
        };
        wanted[104] = 1;
        assert_eq!(shadow.judge(1, &wanted), Err(wrong));
        assert_eq!(shadow.judge(2, &page(0)), Ok(()));
        assert!(!shadow.mapped(0) && !shadow.mapped(3));
    }

    #[test]
    fn pages_of_a_file_are_one() {
        let mut shadow = Shadow::new(8, 2);
        shadow.map_shared(0, 2, 0, Access::Write);
        shadow.map_shared(4, 2, 0, Access::Read);
        shadow.write(1, 9, &[5]);
        assert_eq!(shadow.judge(5, &with(0, 9, 5)), Ok(()));
        shadow.discard(4, 2);
        shadow.unmap(0, 2);
        assert_eq!(shadow.judge(5, &with(0, 9, 5)), Ok(()));
        shadow.punch(1, 1);
        assert_eq!(shadow.judge(5, &page(0)), Ok(()));
    }

    #[test]
    fn what_moves_keeps_its_content() {
        let mut shadow = Shadow::new(8, 1);
        shadow.map_private(0, 1, Access::Read);
        shadow.map_shared(1, 1, 0, Access::Write);
        shadow.write(0, 1, &[1]);
        shadow.write(1, 2, &[2]);
        shadow.relocate(0, 2, 6);
        assert!(!shadow.mapped(0) && !shadow.mapped(1));
        assert_eq!(shadow.access(6), Access::Read);
        assert_eq!(shadow.shared(7), Some(0));
        assert_eq!(shadow.judge(6, &with(0, 1, 1)), Ok(()));
        assert_eq!(shadow.judge(7, &with(0, 2, 2)), Ok(()));
    }

    #[test]
    fn freed_content_is_old_or_zero_until_it_is_written() {
        let mut shadow = Shadow::new(1, 0);
        shadow.map_private(0, 1, Access::Write);
        shadow.write(0, 0, &page(9));
        shadow.free(0, 1);
        assert!(shadow.unsure(0) && shadow.bytes(0).is_none());
        assert_eq!(shadow.judge(0, &page(9)), Ok(()));
        // Neither one nor the other.
        assert!(shadow.judge(0, &with(9, 50, 0)).is_err());
        assert_eq!(shadow.judge(0, &page(0)), Ok(()));
        // What went does not come back.
        assert!(shadow.judge(0, &page(9)).is_err());
        shadow.write(0, 50, &[3]);
        assert!(shadow.judge(0, &with(9, 50, 3)).is_err());
        assert_eq!(shadow.judge(0, &with(0, 50, 3)), Ok(()));
        assert_eq!(shadow.bytes(0), Some(&*with(0, 50, 3)));
    }

    #[test]
    fn a_write_decides_and_what_is_seen_then_stays() {
        let mut shadow = Shadow::new(1, 0);
        shadow.map_private(0, 1, Access::Write);
        shadow.write(0, 0, &page(9));
        shadow.free(0, 1);
        shadow.write(0, 50, &[3]);
        // The write itself is never lost.
        assert!(shadow.judge(0, &page(9)).is_err());
        assert!(shadow.judge(0, &page(0)).is_err());
        assert_eq!(shadow.judge(0, &with(9, 50, 3)), Ok(()));
        assert!(shadow.judge(0, &with(0, 50, 3)).is_err());
        shadow.free(0, 1);
        shadow.discard(0, 1);
        assert_eq!(shadow.bytes(0), Some(&*page(0)));
    }
}
