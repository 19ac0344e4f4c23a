// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where the waves of a queue are saved.

use std::sync::Arc;

use super::object::Object;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::sizes::SaveArea;

/// Memory into which the GPU saves the waves of a compute queue when it is preempted.
///
/// Each queue that runs waves needs one of its own. Queues of one process that run no waves (packets of the command
/// processor only) save nothing and may share one: on a large part it takes more than 60 MiB.
#[derive(Debug)]
pub struct SaveBuffer {
    pub(super) buffer: Buffer,
    pub(super) area: SaveArea,
}

impl SaveBuffer {
    /// Allocates the memory that the GPU's shape demands.
    ///
    /// # Errors
    /// Those of [`Device::save_area`] and [`Buffer::new`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let area = device.save_area()?;
        let total = usize::try_from(area.total)
            .map_err(|_| Error::Argument("A save area beyond memory"))?;
        let buffer = Buffer::new(device, Kind::Userptr, total)?;
        // Where the debugger's part lies: the only words of the header that user space owns here.
        buffer.write_u32(16, area.context)?;
        buffer.write_u32(20, area.debugger)?;
        Ok(Self { buffer, area })
    }

    /// Where the driver reports why the queue failed, and which event it raises then: a word and an event of `object`.
    pub(super) fn report_to(&self, object: &Object) -> Result<()> {
        let Some(event) = object.event() else {
            return Ok(());
        };
        // `err_payload_addr` and `err_event_id` of the header.
        self.buffer.write_u64(24, object.exception_address())?;
        self.buffer.write_u32(32, event.id())
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.buffer.size()
    }
}
