// SPDX-License-Identifier: GPL-2.0

//! Bounds on waits, in milliseconds unless the name says otherwise, and the fence values.
//!
//! Source: `kfd_device_queue_manager.c`, `kfd_priv.h`, `kfd_packet_manager_v9.c`, `amdgpu_device.c`.

/// How long the scheduler may take to answer UNMAP_QUEUES + QUERY_STATUS before it counts as hung.
pub(crate) const HWS_PREEMPTION_MS: u32 = 9000;

/// Unit of SET_RESOURCES.unmap_latency.
pub(crate) const UNMAP_LATENCY_UNIT_MS: u32 = 100;

/// How long the scheduler itself may wait for a queue when the driver waits `timeout` milliseconds: nine tenths of that,
/// split over the two attempts that the firmware makes.
pub(crate) const fn unmap_latency_ms(timeout: u32) -> u32 {
    (timeout - timeout / 10) / 2
}

/// SET_RESOURCES.unmap_latency for a driver timeout: 40 for 9000 ms.
pub(crate) const fn unmap_latency_units(timeout: u32) -> u32 {
    unmap_latency_ms(timeout) / UNMAP_LATENCY_UNIT_MS
}

/// How long a queue may take to leave while another user waits for it. Ours: waves of any length are saved within
/// milliseconds, and a copy engine has as long for its packet where the driver stops it ([`SDMA_IDLE_MS`]).
pub(crate) const AWAITED_PREEMPT_MS: u32 = SDMA_IDLE_MS;
/// The same of a process one of whose queues refused to. Ours.
pub(crate) const RECORD_PREEMPT_MS: u32 = 500;
/// Wait for CP_HQD_ACTIVE to fall after a dequeue request.
pub(crate) const HQD_DEQUEUE_MS: u32 = 1000;
/// Wait for an SDMA context to become idle.
pub(crate) const SDMA_IDLE_MS: u32 = 2000;
/// Wait for a job of the kernel's copy engine, which shares the SDMA engine with user queues. Ours.
pub(crate) const COPY_MS: u32 = 10_000;
/// Wait for a TLB flush to be acknowledged.
pub(crate) const TLB_FLUSH_MS: u32 = 100;
/// Wait for a VMID to stand for another PASID.
pub(crate) const PASID_MAPPING_MS: u32 = 100;
/// Wait for a KIQ packet.
pub(crate) const KIQ_MS: u32 = 1000;
/// Wait for RLC safe mode.
pub(crate) const RLC_SAFE_MODE_MS: u32 = 50;
/// Wait for boot firmware after power-on.
pub(crate) const BOOT_READY_MS: u32 = 2000;
/// Wait for the power controller to answer a message.
pub(crate) const SMU_MS: u32 = 100;
/// Pause after a mode-1 reset request before the device is touched again.
pub(crate) const MODE1_SETTLE_MS: u32 = 500;
/// Wait for the device to answer after a reset.
pub(crate) const RESET_READY_MS: u32 = 10_000;

/// MAP_PROCESS.process_quantum as KFD sets it; the unit is not documented.
pub(crate) const PROCESS_QUANTUM: u32 = 10;
/// CP_IQ_WAIT_TIME2.QUE_SLEEP that KFD sets from GC 9.4.1 on.
pub(crate) const QUE_SLEEP: u32 = 1;
