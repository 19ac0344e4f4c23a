// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A window as the memory of waves, with versions for pages of code.
//!
//! The instruction cache of hardware keeps what it has until it is invalidated: by `s_icache_inv`, and by the command
//! processor when a dispatch begins.  A page is therefore compared with memory once after each of these, and after its
//! translation may have changed; its version grows if its bytes differ.

use gfx9_isa::env::{AtomicOp, Lanes, Memory, MemoryFault, Wide, CODE_PAGE};
use rustc_hash::FxHashMap;

use crate::vm::own::Post;
use crate::vm::space::Epoch;
use crate::vm::window::{Fault, Window};
use crate::vm::Access;

/// Pages that are kept; what is full is emptied.
const PAGES: usize = 512;

/// Until when a page need not be compared: epoch of the space, generation of the map, dispatch and instruction cache.
type Stamp = (Epoch, u64, (u64, u64));

struct CodePage {
    bytes: Vec<u8>,
    version: u64,
    stamp: Stamp,
}

/// Pages of code of an address space, as they were decoded.
#[derive(Default)]
pub struct CodePages {
    pages: FxHashMap<u64, CodePage>,
    versions: u64,
}

impl CodePages {
    fn version(
        &mut self,
        window: &mut Window<'_>,
        page: u64,
        code: (u64, u64),
    ) -> Result<u64, Fault> {
        let stamp = (window.epoch(), window.map().generation(), code);
        if let Some(known) = self.pages.get(&page).filter(|known| known.stamp == stamp) {
            return Ok(known.version);
        }
        let mut bytes = vec![0; CODE_PAGE as usize];
        window.read(page, &mut bytes, Access::Execute)?;
        if let Some(known) = self
            .pages
            .get_mut(&page)
            .filter(|known| known.bytes == bytes)
        {
            known.stamp = stamp;
            return Ok(known.version);
        }
        if self.pages.len() >= PAGES {
            self.pages.clear();
        }
        self.versions += 1;
        let version = self.versions;
        self.pages.insert(
            page,
            CodePage {
                bytes,
                version,
                stamp,
            },
        );
        Ok(version)
    }
}

/// Memory of the waves of one address space.
pub struct WaveMemory<'a> {
    window: Window<'a>,
    pages: &'a mut CodePages,
    /// The dispatch, and the version of its instruction cache.
    code: (u64, u64),
}

impl<'a> WaveMemory<'a> {
    /// The memory behind a window.
    pub fn new(window: Window<'a>, pages: &'a mut CodePages, code: (u64, u64)) -> Self {
        Self {
            window,
            pages,
            code,
        }
    }

    /// See [`Window::take_fault`].
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.window.take_fault()
    }

    /// See [`Window::take_posts`].
    pub fn take_posts(&mut self) -> Vec<Post> {
        self.window.take_posts()
    }
}

impl Memory for WaveMemory<'_> {
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault> {
        self.window.load(address, lanes, bytes, data)
    }

    fn store(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &[Lanes],
    ) -> Result<(), MemoryFault> {
        self.window.store(address, lanes, bytes, data)
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: [&Wide; 2],
        old: &mut Wide,
    ) -> Result<(), MemoryFault> {
        self.window.atomic(op, address, lanes, bytes, data, old)
    }

    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.window.scalar_load(address, data)
    }

    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault> {
        self.window.scalar_store(address, data)
    }

    fn fetch(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.window.fetch(address, data)
    }

    fn code_version(&mut self, page: u64) -> Result<Option<u64>, MemoryFault> {
        self.pages
            .version(&mut self.window, page, self.code)
            .map(Some)
            .map_err(|fault| self.window.refuse(fault))
    }
}
