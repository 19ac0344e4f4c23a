// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HSA signals (`amd_signal_t`).

use crate::cp::eop::source;
use crate::cp::queue::Run;
use crate::cp::slot::SlotId;
use crate::device::Gpu;
use crate::vm::access::{VmError, VmResult};
use crate::vm::Access;

/// Byte offset of the value.
pub const VALUE: u64 = 8;
const MAILBOX: u64 = 16;
const EVENT_ID: u64 = 24;
const START_TS: u64 = 32;
const SIZE: usize = 64;

impl Gpu {
    fn signal_mailbox(&mut self, run: &Run, signal: u64) -> VmResult<(u64, u32)> {
        let c = run.client();
        let mailbox = self.soc.vm_read_u64(c, signal.wrapping_add(MAILBOX))?;
        let event = self.soc.vm_read_u32(c, signal.wrapping_add(EVENT_ID))?;
        self.soc.vm_probe(c, signal, SIZE, Access::Write)?;
        if mailbox != 0 {
            self.soc.vm_probe(c, mailbox, 8, Access::Write)?;
        }
        Ok((mailbox, event))
    }

    /// Value, then mailbox, then interrupt: a waiter that is woken finds everything in place.
    fn signal_notify(&mut self, slot: SlotId, run: &Run, mailbox: u64, event: u32) {
        if mailbox != 0 {
            // Probed by the caller.
            let _ = self
                .soc
                .vm_write(run.client(), mailbox, &u64::from(event).to_le_bytes());
            self.cp_interrupt(slot, run.vmid, source::EOP, event);
        }
    }

    /// Completes the signal of a packet that began and ended at these times (ticks): timestamps, decrement, mailbox,
    /// interrupt.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn signal_complete(
        &mut self,
        slot: SlotId,
        run: &Run,
        signal: u64,
        (begun, ended): (u64, u64),
    ) -> VmResult<()> {
        let (mailbox, event) = self.signal_mailbox(run, signal)?;
        // A buffer that is gone for good is reported by the access; the event goes on without its record.
        if self.eop_record(slot, run, signal) == Err(VmError::Retry) {
            return Err(VmError::Retry);
        }
        self.eop_done(slot);
        if self.soc.inject.take_fence(run.doorbell) {
            return Ok(());
        }
        let c = run.client();
        let mut stamps = [0u8; 16];
        let (start, end) = stamps.split_at_mut(8);
        start.copy_from_slice(&begun.to_le_bytes());
        end.copy_from_slice(&ended.to_le_bytes());
        self.soc
            .vm_write(c, signal.wrapping_add(START_TS), &stamps)?;
        self.soc
            .vm_atomic(c, signal.wrapping_add(VALUE), true, |v| v.wrapping_sub(1))?;
        self.signal_notify(slot, run, mailbox, event);
        Ok(())
    }

    /// Sets a signal to a value and notifies.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn signal_set(&mut self, slot: SlotId, run: &Run, signal: u64, value: u64) -> VmResult<()> {
        let (mailbox, event) = self.signal_mailbox(run, signal)?;
        self.soc.vm_write(
            run.client(),
            signal.wrapping_add(VALUE),
            &value.to_le_bytes(),
        )?;
        self.signal_notify(slot, run, mailbox, event);
        Ok(())
    }
}
