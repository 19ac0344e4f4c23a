// SPDX-License-Identifier: GPL-2.0

//! What a GPU shows in its directory in debugfs, beside the scheduler.
//!
//! | file | content |
//! |---|---|
//! | `rings` | pointers of the kernel interface queue, the copy engine and the interrupt rings |
//! | `ih` | what the interrupt thread has seen, by kind |
//! | `doorbells` | the owner of each slice of the doorbell BAR, and doorbells that no queue answered |
//! | `memory` | VRAM, doorbell slices and address space ids in use |
//! | `devmem` | pages of programs in VRAM: their addresses, rooms with live pages, and how many pages of each are in use |
//! | `mirrors` | figures of mirrors, each mirror, and which of its GPU addresses are shown |
//! | `userptr` | how many pages of processes had their entries written anew, or taken away, because pages changed |
//!
//! The files go before the GPU does; reading them takes no hardware access.

use kernel::{
    debugfs::File,
    fmt,
    prelude::*,
    sync::Arc, //
};

use super::Gpu;

/// The files of one GPU; they go when this is dropped, which waits for readers.
#[pin_data]
pub(crate) struct DebugFiles {
    #[pin]
    rings: File<Arc<Gpu>>,
    #[pin]
    ih: File<Arc<Gpu>>,
    #[pin]
    doorbells: File<Arc<Gpu>>,
    #[pin]
    memory: File<Arc<Gpu>>,
    #[pin]
    devmem: File<Arc<Gpu>>,
    #[pin]
    mirrors: File<Arc<Gpu>>,
    #[pin]
    userptr: File<Arc<Gpu>>,
}

impl DebugFiles {
    /// Makes the files. Where debugfs refuses they do not exist, which is no error; `None` if the
    /// GPU has no directory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Option<Pin<KBox<Self>>>> {
        let Some(dir) = gpu.debugfs() else {
            return Ok(None);
        };
        let files = try_pin_init!(Self {
            rings <- dir.read_callback_file(c"rings", gpu.clone(), &rings),
            ih <- dir.read_callback_file(c"ih", gpu.clone(), &ih),
            doorbells <- dir.read_callback_file(c"doorbells", gpu.clone(), &doorbells),
            memory <- dir.read_callback_file(c"memory", gpu.clone(), &memory),
            devmem <- dir.read_callback_file(c"devmem", gpu.clone(), &devmem),
            mirrors <- dir.read_callback_file(c"mirrors", gpu.clone(), &mirrors),
            userptr <- dir.read_callback_file(c"userptr", gpu.clone(), &userptr),
        }? Error);
        Ok(Some(KBox::pin_init(files, GFP_KERNEL)?))
    }
}

fn rings(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kiq = gpu.kiq().status();
    writeln!(f, "ring  written        read           state")?;
    writeln!(
        f,
        "kiq   {:<14} {:<14} {}, {} submissions",
        kiq.wptr,
        kiq.rptr,
        if kiq.stuck { "stuck" } else { "ready" },
        kiq.submissions
    )?;
    let copy = gpu.copy().status();
    writeln!(
        f,
        "copy  {:<14} {:<14} {}, {} jobs",
        copy.written,
        copy.done,
        if copy.ready { "ready" } else { "stopped" },
        copy.jobs
    )?;
    let positions = gpu.ih().positions();
    for (ring, (position, vectors)) in positions
        .iter()
        .zip(&gpu.ih().counters().vectors)
        .take(crate::hw::num::index(gpu.asic().ih.rings))
        .enumerate()
    {
        writeln!(
            f,
            "ih{}   {:<14} {:<14} byte position",
            ring,
            vectors.get(),
            position
        )?;
    }
    Ok(())
}

fn ih(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let count = gpu.ih().counters();
    for (name, counter) in [
        ("interrupts", &count.interrupts),
        ("unannounced", &count.unannounced),
        ("eop", &count.eop),
        ("sdma_trap", &count.sdma_trap),
        ("copy", &count.copy),
        ("sq", &count.sq),
        ("bad_opcode", &count.bad_opcode),
        ("fault", &count.faults),
        ("fault_drops", &count.fault_drops),
        ("retry_fault", &count.retry_faults),
        ("other", &count.other),
        ("foreign", &count.foreign),
        ("overflow", &count.overflows),
        ("bad_pointer", &count.bad_pointers),
    ] {
        writeln!(f, "{:<12} {}", name, counter.get())?;
    }
    Ok(())
}

fn doorbells(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    gpu.doorbells().show(f)
}

fn mirrors(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    gpu.mirrors().show(f)
}

fn devmem(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    gpu.device_pages().show(f)
}

fn userptr(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "rewritten {}", gpu.rewritten())
}

fn memory(gpu: &Arc<Gpu>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (slices, all) = gpu.doorbells().usage();
    writeln!(f, "what           used           of")?;
    writeln!(
        f,
        "vram bytes     {:<14} {}",
        gpu.vram().used(),
        gpu.vram().total()
    )?;
    writeln!(
        f,
        "page tables    {:<14} {}",
        gpu.table_budget().used(),
        gpu.table_budget().reserve()
    )?;
    writeln!(f, "doorbell slice {:<14} {}", slices, all)?;
    writeln!(
        f,
        "pasid          {:<14} {}",
        gpu.pasids().in_use(),
        super::pasid::COUNT
    )
}
