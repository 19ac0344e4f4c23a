// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Exception events: what a program learns of memory faults, hangs and resets.

use std::sync::Arc;
use std::time::Duration;

use crate::abi;
use crate::abi::event_type;
use crate::device::Device;
use crate::error::Result;
use crate::event;

/// What happened on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// A queue hung, or the GPU was reset or lost (`kfd_hsa_hw_exception_data`).
    Hardware {
        /// Type of reset: 0 whole GPU, 1 engine.
        reset_type: u32,
        /// Cause: 0 hang, 1 memory error.
        reset_cause: u32,
        /// Whether the contents of VRAM are gone.
        memory_lost: bool,
        /// The GPU.
        gpu_id: u32,
    },
    /// An access that no page backs (`kfd_hsa_memory_exception_data`).
    Memory {
        /// No page was there.
        not_present: bool,
        /// A write to a page without permission.
        read_only: bool,
        /// An instruction fetch from a page without permission.
        no_execute: bool,
        /// The address is not exact.
        imprecise: bool,
        /// 0 for an ordinary fault, 1 and 2 for memory errors, 3 for a hang (`KFD_MEM_ERR_*`).
        cause: u32,
        /// The page's address.
        address: u64,
        /// The GPU.
        gpu_id: u32,
    },
}

/// An event that the driver raises by itself; destroyed when dropped.
#[derive(Debug)]
pub struct ExceptionEvent {
    device: Arc<Device>,
    id: u32,
    kind: u32,
}

impl ExceptionEvent {
    /// An event for hangs, resets and losses of this process's queues and GPUs.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub fn hardware(device: &Arc<Device>) -> Result<Self> {
        Self::new(device, event_type::HW_EXCEPTION)
    }

    /// An event for memory faults of this process's queues.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub fn memory(device: &Arc<Device>) -> Result<Self> {
        Self::new(device, event_type::MEMORY)
    }

    fn new(device: &Arc<Device>, kind: u32) -> Result<Self> {
        let mut arg = abi::CreateEvent {
            event_type: kind,
            node_id: device
                .gpu()
                .node
                .as_ref()
                .map(|n| n.index)
                .unwrap_or_default(),
            ..Default::default()
        };
        device
            .kfd()
            .plain("CREATE_EVENT", abi::CREATE_EVENT, &mut arg)?;
        Ok(Self {
            device: device.clone(),
            id: arg.event_id,
            kind,
        })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sleeps until it is raised; `None` where it was not in time. It stays raised.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Exception>> {
        let mut entry = [abi::EventData {
            event_id: self.id,
            ..Default::default()
        }];
        Ok(
            match event::wait_data(&self.device, &mut entry, true, timeout)? {
                event::Waited::TimedOut => None,
                event::Waited::Complete => Some(payload(self.kind, &entry[0])),
            },
        )
    }
}

impl event::Awaited for ExceptionEvent {
    fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for ExceptionEvent {
    fn drop(&mut self) {
        let mut arg = abi::DestroyEvent {
            event_id: self.id,
            pad: 0,
        };
        let _ = self
            .device
            .kfd()
            .plain("DESTROY_EVENT", abi::DESTROY_EVENT, &mut arg);
    }
}

/// The union of `kfd_event_data`, as words.
fn payload(kind: u32, data: &abi::EventData) -> Exception {
    // CAST: the halves of the words are the fields.
    let half = |word: u64, high: bool| {
        if high {
            (word >> 32) as u32
        } else {
            word as u32
        }
    };
    let first = data.last_event_age;
    let [second, third, fourth] = data.rest;
    if kind == event_type::HW_EXCEPTION {
        Exception::Hardware {
            reset_type: half(first, false),
            reset_cause: half(first, true),
            memory_lost: half(second, false) != 0,
            gpu_id: half(second, true),
        }
    } else {
        Exception::Memory {
            not_present: half(first, false) != 0,
            read_only: half(first, true) != 0,
            no_execute: half(second, false) != 0,
            imprecise: half(second, true) != 0,
            cause: half(fourth, true),
            address: third,
            gpu_id: half(fourth, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_headers_layout() {
        let data = abi::EventData {
            last_event_age: 1 | (2 << 32),
            rest: [3 | (4 << 32), 0x7000_1000, 6 | (7 << 32)],
            ..Default::default()
        };
        assert_eq!(
            payload(event_type::MEMORY, &data),
            Exception::Memory {
                not_present: true,
                read_only: true,
                no_execute: true,
                imprecise: true,
                cause: 7,
                address: 0x7000_1000,
                gpu_id: 6,
            }
        );
        assert_eq!(
            payload(event_type::HW_EXCEPTION, &data),
            Exception::Hardware {
                reset_type: 1,
                reset_cause: 2,
                memory_lost: true,
                gpu_id: 4,
            }
        );
    }
}
