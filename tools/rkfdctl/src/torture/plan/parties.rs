// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who may write what in a round, and what packets under way use.

use super::super::shadow::Shadow;
use super::super::shadow::STRIPES;

/// Who writes which stripe.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// How many GPUs there are.
    pub gpus: usize,
    /// The stripes move on with each round.
    pub round: u64,
}

impl Parties {
    /// The CPU; GPU n is n + 1.
    pub const CPU: usize = 0;

    /// The party of a stripe; the one behind the GPUs is nobody.
    pub fn owner(self, stripe: usize) -> usize {
        let parties = self.gpus + 2;
        // CAST: small numbers.
        (stripe + (self.round % parties as u64) as usize) % parties
    }

    /// Whether no GPU writes a stripe.
    pub fn quiet(self, stripe: usize) -> bool {
        let owner = self.owner(stripe);
        owner == Self::CPU || owner == self.gpus + 1
    }

    /// Whether a party may read a stripe.
    pub fn readable(self, party: usize, stripe: usize) -> bool {
        let owner = self.owner(stripe);
        owner == party || owner == self.gpus + 1
    }

    /// The stripes of a party.
    pub fn stripes(self, party: usize) -> impl Iterator<Item = usize> {
        (0..STRIPES).filter(move |stripe| self.owner(*stripe) == party)
    }
}

/// What GPUs do with a page in a round.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Use {
    Idle,
    Read,
    Written,
}

/// What is in use by packets that may not be done.
#[derive(Clone, Debug)]
pub struct Busy {
    pages: Vec<Use>,
    file: Vec<Use>,
}

impl Busy {
    pub fn new(shadow: &Shadow) -> Self {
        Self {
            pages: vec![Use::Idle; shadow.pages()],
            file: vec![Use::Idle; shadow.file_pages()],
        }
    }

    pub fn mark(&mut self, shadow: &Shadow, page: usize, how: Use) {
        if let Some(at) = self.pages.get_mut(page) {
            *at = how.max(*at);
        }
        if let Some(at) = shadow.shared(page).and_then(|at| self.file.get_mut(at)) {
            *at = how.max(*at);
        }
    }

    pub fn page(&self, page: usize) -> Use {
        self.pages.get(page).copied().unwrap_or(Use::Written)
    }

    pub fn file(&self, page: usize) -> Use {
        self.file.get(page).copied().unwrap_or(Use::Written)
    }

    /// Whether a GPU may be writing what a page shows.
    pub fn written(&self, shadow: &Shadow, page: usize) -> bool {
        let shown = shadow.shared(page).map_or(Use::Idle, |at| self.file(at));
        self.page(page).max(shown) == Use::Written
    }

    /// Pages by whose addresses GPUs write.
    pub fn all_written(&self) -> impl Iterator<Item = usize> + '_ {
        let pages = self.pages.iter().enumerate();
        pages.filter_map(|(page, how)| (*how == Use::Written).then_some(page))
    }
}
