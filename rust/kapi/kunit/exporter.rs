// SPDX-License-Identifier: GPL-2.0

//! A driver that shares buffers, for tests of what imports them. It says where a device finds a buffer what the test
//! wants it to say, and notes what it is asked. No device ever accesses these addresses.

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    types::Opaque, //
};

use crate::kapi::dma_buf::DmaBuf;

/// What an exporter is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To let a device attach.
    Attach,
    /// To map.
    Map,
    /// To unmap.
    Unmap,
    /// To let it detach.
    Detach,
    /// To free the buffer.
    Release,
}

/// More than a test makes it do.
const MOST_ASKED: usize = 32;

/// What the exporter answers, and what it was asked.
#[pin_data]
pub(crate) struct Exporter {
    /// Address and bytes of each part that a device sees.
    segments: KVec<(u64, u32)>,
    attach: Result,
    map: Result,
    /// In order. Has room for [`MOST_ASKED`].
    #[pin]
    asked: SpinLock<KVec<Asked>>,
}

/// What an exporter answers.
pub(crate) struct Answers<'a> {
    /// To [`Asked::Attach`].
    pub(crate) attach: Result,
    /// To [`Asked::Map`].
    pub(crate) map: Result,
    /// Address and bytes of each part that a device sees.
    pub(crate) segments: &'a [(u64, u32)],
}

impl Exporter {
    const OPS: bindings::dma_buf_ops = {
        let mut ops: bindings::dma_buf_ops = pin_init::zeroed();
        ops.attach = Some(Self::attach);
        ops.detach = Some(Self::detach);
        ops.map_dma_buf = Some(Self::map);
        ops.unmap_dma_buf = Some(Self::unmap);
        ops.release = Some(Self::release);
        ops
    };

    /// Shares a buffer of `size` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no segment, `ENOMEM`.
    pub(crate) fn share(size: usize, answers: &Answers<'_>) -> Result<(Arc<Self>, DmaBuf)> {
        if answers.segments.is_empty() {
            return Err(EINVAL);
        }
        let mut segments = KVec::new();
        segments.extend_from_slice(answers.segments, GFP_KERNEL)?;
        let asked = KVec::with_capacity(MOST_ASKED, GFP_KERNEL)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                segments,
                attach: answers.attach,
                map: answers.map,
                asked <- new_spinlock!(asked, "rkfd_kunit_exporter"),
            }),
            GFP_KERNEL,
        )?;
        let mut info: bindings::dma_buf_export_info = pin_init::zeroed();
        info.exp_name = c"rkfd-kunit".as_char_ptr();
        info.ops = &Self::OPS;
        info.size = size;
        let own = Arc::into_raw(this.clone());
        info.priv_ = own.cast_mut().cast();
        // SAFETY: All that a buffer needs is set; it has the reference `own` until `release`.
        let raw = unsafe { bindings::dma_buf_export(&info) };
        // SAFETY: An error or a buffer whose reference is ours.
        let dma_buf = unsafe { DmaBuf::from_raw(raw) };
        if dma_buf.is_err() {
            // SAFETY: From `into_raw`; no buffer has it.
            drop(unsafe { Arc::from_raw(own) });
        }
        Ok((this, dma_buf?))
    }

    /// What it was asked, in order.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn asked(&self) -> Result<KVec<Asked>> {
        let mut copy = KVec::with_capacity(MOST_ASKED, GFP_KERNEL)?;
        let asked = self.asked.lock();
        copy.extend_from_slice(&asked, GFP_ATOMIC)?;
        Ok(copy)
    }

    fn note(&self, what: Asked) {
        // A test that asks for more sees that the last ones lack.
        let _ = self.asked.lock().push_within_capacity(what);
    }

    /// # Safety
    ///
    /// `dma_buf` was made by [`Self::share`], and lives for `'a`.
    unsafe fn of<'a>(dma_buf: *mut bindings::dma_buf) -> &'a Self {
        // SAFETY: By the requirement of this function; the buffer has a reference.
        unsafe { &*(*dma_buf).priv_.cast::<Self>() }
    }

    /// # Safety
    ///
    /// Called by C for a buffer that [`Self::share`] made, as the functions that follow.
    unsafe extern "C" fn attach(
        dma_buf: *mut bindings::dma_buf,
        attachment: *mut bindings::dma_buf_attachment,
    ) -> c_int {
        // SAFETY: By the requirement of this function.
        let this = unsafe { Self::of(dma_buf) };
        this.note(Asked::Attach);
        // SAFETY: The attachment is valid.
        if unsafe { (*attachment).peer2peer || !(*attachment).importer_ops.is_null() } {
            // Not what the importer says of itself.
            return EPROTO.to_errno();
        }
        this.attach.map_or_else(|e| e.to_errno(), |()| 0)
    }

    /// # Safety
    ///
    /// As [`Self::attach`].
    unsafe extern "C" fn detach(
        dma_buf: *mut bindings::dma_buf,
        _attachment: *mut bindings::dma_buf_attachment,
    ) {
        // SAFETY: By the requirement of this function.
        unsafe { Self::of(dma_buf) }.note(Asked::Detach);
    }

    /// # Safety
    ///
    /// As [`Self::attach`].
    unsafe extern "C" fn map(
        attachment: *mut bindings::dma_buf_attachment,
        _dir: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table {
        // SAFETY: By the requirement of this function; an attachment keeps its buffer.
        let this = unsafe { Self::of((*attachment).dmabuf) };
        this.note(Asked::Map);
        match this.map.and_then(|()| this.table()) {
            Ok(table) => KBox::into_raw(table).cast(),
            Err(e) => e.to_ptr(),
        }
    }

    /// A table of the segments, as if they were mapped.
    fn table(&self) -> Result<KBox<Opaque<bindings::sg_table>>> {
        let table = KBox::new(Opaque::<bindings::sg_table>::zeroed(), GFP_KERNEL)?;
        let count = c_uint::try_from(self.segments.len())?;
        // SAFETY: Memory for a table of at least one entry.
        to_result(unsafe { bindings::sg_alloc_table(table.get(), count, bindings::GFP_KERNEL) })?;
        // SAFETY: Made above; `sg_next` goes from each entry to the one behind it.
        unsafe {
            let mut sg = (*table.get()).sgl;
            for (addr, len) in &self.segments {
                (*sg).dma_address = *addr;
                (*sg).dma_length = *len;
                sg = bindings::sg_next(sg);
            }
        }
        Ok(table)
    }

    /// # Safety
    ///
    /// As [`Self::attach`], with a result of [`Self::map`].
    unsafe extern "C" fn unmap(
        attachment: *mut bindings::dma_buf_attachment,
        table: *mut bindings::sg_table,
        _dir: bindings::dma_data_direction,
    ) {
        // SAFETY: By the requirement of this function; an attachment keeps its buffer.
        unsafe { Self::of((*attachment).dmabuf) }.note(Asked::Unmap);
        // SAFETY: From `map`; `Opaque` is transparent.
        let table = unsafe { KBox::from_raw(table.cast::<Opaque<bindings::sg_table>>()) };
        // SAFETY: Allocated in `table`.
        unsafe { bindings::sg_free_table(table.get()) };
    }

    /// # Safety
    ///
    /// As [`Self::attach`], once.
    unsafe extern "C" fn release(dma_buf: *mut bindings::dma_buf) {
        // SAFETY: By the requirement of this function: what `share` gave away.
        if let Some(own) = NonNull::new(unsafe { (*dma_buf).priv_ }) {
            // SAFETY: `share` gave the buffer a reference from `Arc::into_raw`, and a buffer is released once.
            let this = unsafe { Arc::from_raw(own.cast::<Self>().as_ptr().cast_const()) };
            this.note(Asked::Release);
        }
    }
}
