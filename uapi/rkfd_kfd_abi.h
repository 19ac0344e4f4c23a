/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * What rkfd answers on /dev/kfd, as numbers.
 *
 * The interface is that of linux/kfd_ioctl.h; include that header to use it. This one restates, as the
 * driver's own source does, every command word and the size and offset of every field, so that a
 * program that includes both can prove that they agree:
 *
 *	#define STRUCT(name, size) _Static_assert(sizeof(struct name) == size, #name);
 *	#define FIELD(name, field, offset, size) ...
 *	#define COMMAND(name, word) ...
 *	RKFD_KFD_STRUCTS
 *	RKFD_KFD_COMMANDS
 *
 * A field of size 0 is a union of which only the place is fixed.
 */
#ifndef RKFD_KFD_ABI_H
#define RKFD_KFD_ABI_H

/* Version that GET_VERSION tells. */
#define RKFD_KFD_MAJOR 1
#define RKFD_KFD_MINOR 23

/* STRUCT(name, size in bytes), FIELD(struct, field, offset, size). */
#define RKFD_KFD_STRUCTS \
	STRUCT(kfd_ioctl_get_version_args, 8) \
	FIELD(kfd_ioctl_get_version_args, major_version, 0, 4) \
	FIELD(kfd_ioctl_get_version_args, minor_version, 4, 4) \
	STRUCT(kfd_ioctl_create_queue_args, 96) \
	FIELD(kfd_ioctl_create_queue_args, ring_base_address, 0, 8) \
	FIELD(kfd_ioctl_create_queue_args, write_pointer_address, 8, 8) \
	FIELD(kfd_ioctl_create_queue_args, read_pointer_address, 16, 8) \
	FIELD(kfd_ioctl_create_queue_args, doorbell_offset, 24, 8) \
	FIELD(kfd_ioctl_create_queue_args, ring_size, 32, 4) \
	FIELD(kfd_ioctl_create_queue_args, gpu_id, 36, 4) \
	FIELD(kfd_ioctl_create_queue_args, queue_type, 40, 4) \
	FIELD(kfd_ioctl_create_queue_args, queue_percentage, 44, 4) \
	FIELD(kfd_ioctl_create_queue_args, queue_priority, 48, 4) \
	FIELD(kfd_ioctl_create_queue_args, queue_id, 52, 4) \
	FIELD(kfd_ioctl_create_queue_args, eop_buffer_address, 56, 8) \
	FIELD(kfd_ioctl_create_queue_args, eop_buffer_size, 64, 8) \
	FIELD(kfd_ioctl_create_queue_args, ctx_save_restore_address, 72, 8) \
	FIELD(kfd_ioctl_create_queue_args, ctx_save_restore_size, 80, 4) \
	FIELD(kfd_ioctl_create_queue_args, ctl_stack_size, 84, 4) \
	FIELD(kfd_ioctl_create_queue_args, sdma_engine_id, 88, 4) \
	FIELD(kfd_ioctl_create_queue_args, metadata_ring_size, 92, 4) \
	STRUCT(kfd_ioctl_destroy_queue_args, 8) \
	FIELD(kfd_ioctl_destroy_queue_args, queue_id, 0, 4) \
	FIELD(kfd_ioctl_destroy_queue_args, pad, 4, 4) \
	STRUCT(kfd_ioctl_update_queue_args, 24) \
	FIELD(kfd_ioctl_update_queue_args, ring_base_address, 0, 8) \
	FIELD(kfd_ioctl_update_queue_args, queue_id, 8, 4) \
	FIELD(kfd_ioctl_update_queue_args, ring_size, 12, 4) \
	FIELD(kfd_ioctl_update_queue_args, queue_percentage, 16, 4) \
	FIELD(kfd_ioctl_update_queue_args, queue_priority, 20, 4) \
	STRUCT(kfd_ioctl_set_cu_mask_args, 16) \
	FIELD(kfd_ioctl_set_cu_mask_args, queue_id, 0, 4) \
	FIELD(kfd_ioctl_set_cu_mask_args, num_cu_mask, 4, 4) \
	FIELD(kfd_ioctl_set_cu_mask_args, cu_mask_ptr, 8, 8) \
	STRUCT(kfd_ioctl_get_queue_wave_state_args, 24) \
	FIELD(kfd_ioctl_get_queue_wave_state_args, ctl_stack_address, 0, 8) \
	FIELD(kfd_ioctl_get_queue_wave_state_args, ctl_stack_used_size, 8, 4) \
	FIELD(kfd_ioctl_get_queue_wave_state_args, save_area_used_size, 12, 4) \
	FIELD(kfd_ioctl_get_queue_wave_state_args, queue_id, 16, 4) \
	FIELD(kfd_ioctl_get_queue_wave_state_args, pad, 20, 4) \
	STRUCT(kfd_ioctl_set_memory_policy_args, 32) \
	FIELD(kfd_ioctl_set_memory_policy_args, alternate_aperture_base, 0, 8) \
	FIELD(kfd_ioctl_set_memory_policy_args, alternate_aperture_size, 8, 8) \
	FIELD(kfd_ioctl_set_memory_policy_args, gpu_id, 16, 4) \
	FIELD(kfd_ioctl_set_memory_policy_args, default_policy, 20, 4) \
	FIELD(kfd_ioctl_set_memory_policy_args, alternate_policy, 24, 4) \
	FIELD(kfd_ioctl_set_memory_policy_args, misc_process_flag, 28, 4) \
	STRUCT(kfd_ioctl_get_clock_counters_args, 40) \
	FIELD(kfd_ioctl_get_clock_counters_args, gpu_clock_counter, 0, 8) \
	FIELD(kfd_ioctl_get_clock_counters_args, cpu_clock_counter, 8, 8) \
	FIELD(kfd_ioctl_get_clock_counters_args, system_clock_counter, 16, 8) \
	FIELD(kfd_ioctl_get_clock_counters_args, system_clock_freq, 24, 8) \
	FIELD(kfd_ioctl_get_clock_counters_args, gpu_id, 32, 4) \
	FIELD(kfd_ioctl_get_clock_counters_args, pad, 36, 4) \
	STRUCT(kfd_process_device_apertures, 56) \
	FIELD(kfd_process_device_apertures, lds_base, 0, 8) \
	FIELD(kfd_process_device_apertures, lds_limit, 8, 8) \
	FIELD(kfd_process_device_apertures, scratch_base, 16, 8) \
	FIELD(kfd_process_device_apertures, scratch_limit, 24, 8) \
	FIELD(kfd_process_device_apertures, gpuvm_base, 32, 8) \
	FIELD(kfd_process_device_apertures, gpuvm_limit, 40, 8) \
	FIELD(kfd_process_device_apertures, gpu_id, 48, 4) \
	FIELD(kfd_process_device_apertures, pad, 52, 4) \
	STRUCT(kfd_ioctl_get_process_apertures_args, 400) \
	FIELD(kfd_ioctl_get_process_apertures_args, process_apertures, 0, 392) \
	FIELD(kfd_ioctl_get_process_apertures_args, num_of_nodes, 392, 4) \
	FIELD(kfd_ioctl_get_process_apertures_args, pad, 396, 4) \
	STRUCT(kfd_ioctl_get_process_apertures_new_args, 16) \
	FIELD(kfd_ioctl_get_process_apertures_new_args, kfd_process_device_apertures_ptr, 0, 8) \
	FIELD(kfd_ioctl_get_process_apertures_new_args, num_of_nodes, 8, 4) \
	FIELD(kfd_ioctl_get_process_apertures_new_args, pad, 12, 4) \
	STRUCT(kfd_ioctl_create_event_args, 32) \
	FIELD(kfd_ioctl_create_event_args, event_page_offset, 0, 8) \
	FIELD(kfd_ioctl_create_event_args, event_trigger_data, 8, 4) \
	FIELD(kfd_ioctl_create_event_args, event_type, 12, 4) \
	FIELD(kfd_ioctl_create_event_args, auto_reset, 16, 4) \
	FIELD(kfd_ioctl_create_event_args, node_id, 20, 4) \
	FIELD(kfd_ioctl_create_event_args, event_id, 24, 4) \
	FIELD(kfd_ioctl_create_event_args, event_slot_index, 28, 4) \
	STRUCT(kfd_ioctl_set_event_args, 8) \
	FIELD(kfd_ioctl_set_event_args, event_id, 0, 4) \
	FIELD(kfd_ioctl_set_event_args, pad, 4, 4) \
	STRUCT(kfd_ioctl_wait_events_args, 24) \
	FIELD(kfd_ioctl_wait_events_args, events_ptr, 0, 8) \
	FIELD(kfd_ioctl_wait_events_args, num_events, 8, 4) \
	FIELD(kfd_ioctl_wait_events_args, wait_for_all, 12, 4) \
	FIELD(kfd_ioctl_wait_events_args, timeout, 16, 4) \
	FIELD(kfd_ioctl_wait_events_args, wait_result, 20, 4) \
	STRUCT(kfd_event_data, 48) \
	FIELD(kfd_event_data, memory_exception_data, 0, 32) \
	FIELD(kfd_event_data, kfd_event_data_ext, 32, 8) \
	FIELD(kfd_event_data, event_id, 40, 4) \
	FIELD(kfd_event_data, pad, 44, 4) \
	STRUCT(kfd_ioctl_set_scratch_backing_va_args, 16) \
	FIELD(kfd_ioctl_set_scratch_backing_va_args, va_addr, 0, 8) \
	FIELD(kfd_ioctl_set_scratch_backing_va_args, gpu_id, 8, 4) \
	FIELD(kfd_ioctl_set_scratch_backing_va_args, pad, 12, 4) \
	STRUCT(kfd_ioctl_get_tile_config_args, 40) \
	FIELD(kfd_ioctl_get_tile_config_args, tile_config_ptr, 0, 8) \
	FIELD(kfd_ioctl_get_tile_config_args, macro_tile_config_ptr, 8, 8) \
	FIELD(kfd_ioctl_get_tile_config_args, num_tile_configs, 16, 4) \
	FIELD(kfd_ioctl_get_tile_config_args, num_macro_tile_configs, 20, 4) \
	FIELD(kfd_ioctl_get_tile_config_args, gpu_id, 24, 4) \
	FIELD(kfd_ioctl_get_tile_config_args, gb_addr_config, 28, 4) \
	FIELD(kfd_ioctl_get_tile_config_args, num_banks, 32, 4) \
	FIELD(kfd_ioctl_get_tile_config_args, num_ranks, 36, 4) \
	STRUCT(kfd_ioctl_set_trap_handler_args, 24) \
	FIELD(kfd_ioctl_set_trap_handler_args, tba_addr, 0, 8) \
	FIELD(kfd_ioctl_set_trap_handler_args, tma_addr, 8, 8) \
	FIELD(kfd_ioctl_set_trap_handler_args, gpu_id, 16, 4) \
	FIELD(kfd_ioctl_set_trap_handler_args, pad, 20, 4) \
	STRUCT(kfd_ioctl_acquire_vm_args, 8) \
	FIELD(kfd_ioctl_acquire_vm_args, drm_fd, 0, 4) \
	FIELD(kfd_ioctl_acquire_vm_args, gpu_id, 4, 4) \
	STRUCT(kfd_ioctl_alloc_memory_of_gpu_args, 40) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, va_addr, 0, 8) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, size, 8, 8) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, handle, 16, 8) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, mmap_offset, 24, 8) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, gpu_id, 32, 4) \
	FIELD(kfd_ioctl_alloc_memory_of_gpu_args, flags, 36, 4) \
	STRUCT(kfd_ioctl_free_memory_of_gpu_args, 8) \
	FIELD(kfd_ioctl_free_memory_of_gpu_args, handle, 0, 8) \
	STRUCT(kfd_ioctl_map_memory_to_gpu_args, 24) \
	FIELD(kfd_ioctl_map_memory_to_gpu_args, handle, 0, 8) \
	FIELD(kfd_ioctl_map_memory_to_gpu_args, device_ids_array_ptr, 8, 8) \
	FIELD(kfd_ioctl_map_memory_to_gpu_args, n_devices, 16, 4) \
	FIELD(kfd_ioctl_map_memory_to_gpu_args, n_success, 20, 4) \
	STRUCT(kfd_ioctl_alloc_queue_gws_args, 16) \
	FIELD(kfd_ioctl_alloc_queue_gws_args, queue_id, 0, 4) \
	FIELD(kfd_ioctl_alloc_queue_gws_args, num_gws, 4, 4) \
	FIELD(kfd_ioctl_alloc_queue_gws_args, first_gws, 8, 4) \
	FIELD(kfd_ioctl_alloc_queue_gws_args, pad, 12, 4) \
	STRUCT(kfd_ioctl_get_dmabuf_info_args, 32) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, size, 0, 8) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, metadata_ptr, 8, 8) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, metadata_size, 16, 4) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, gpu_id, 20, 4) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, flags, 24, 4) \
	FIELD(kfd_ioctl_get_dmabuf_info_args, dmabuf_fd, 28, 4) \
	STRUCT(kfd_ioctl_import_dmabuf_args, 24) \
	FIELD(kfd_ioctl_import_dmabuf_args, va_addr, 0, 8) \
	FIELD(kfd_ioctl_import_dmabuf_args, handle, 8, 8) \
	FIELD(kfd_ioctl_import_dmabuf_args, gpu_id, 16, 4) \
	FIELD(kfd_ioctl_import_dmabuf_args, dmabuf_fd, 20, 4) \
	STRUCT(kfd_ioctl_export_dmabuf_args, 16) \
	FIELD(kfd_ioctl_export_dmabuf_args, handle, 0, 8) \
	FIELD(kfd_ioctl_export_dmabuf_args, flags, 8, 4) \
	FIELD(kfd_ioctl_export_dmabuf_args, dmabuf_fd, 12, 4) \
	STRUCT(kfd_ioctl_smi_events_args, 8) \
	FIELD(kfd_ioctl_smi_events_args, gpuid, 0, 4) \
	FIELD(kfd_ioctl_smi_events_args, anon_fd, 4, 4) \
	STRUCT(kfd_ioctl_svm_args, 24) \
	FIELD(kfd_ioctl_svm_args, start_addr, 0, 8) \
	FIELD(kfd_ioctl_svm_args, size, 8, 8) \
	FIELD(kfd_ioctl_svm_args, op, 16, 4) \
	FIELD(kfd_ioctl_svm_args, nattr, 20, 4) \
	STRUCT(kfd_ioctl_set_xnack_mode_args, 4) \
	FIELD(kfd_ioctl_set_xnack_mode_args, xnack_enabled, 0, 4) \
	STRUCT(kfd_ioctl_criu_args, 56) \
	FIELD(kfd_ioctl_criu_args, devices, 0, 8) \
	FIELD(kfd_ioctl_criu_args, bos, 8, 8) \
	FIELD(kfd_ioctl_criu_args, priv_data, 16, 8) \
	FIELD(kfd_ioctl_criu_args, priv_data_size, 24, 8) \
	FIELD(kfd_ioctl_criu_args, num_devices, 32, 4) \
	FIELD(kfd_ioctl_criu_args, num_bos, 36, 4) \
	FIELD(kfd_ioctl_criu_args, num_objects, 40, 4) \
	FIELD(kfd_ioctl_criu_args, pid, 44, 4) \
	FIELD(kfd_ioctl_criu_args, op, 48, 4) \
	STRUCT(kfd_ioctl_get_available_memory_args, 16) \
	FIELD(kfd_ioctl_get_available_memory_args, available, 0, 8) \
	FIELD(kfd_ioctl_get_available_memory_args, gpu_id, 8, 4) \
	FIELD(kfd_ioctl_get_available_memory_args, pad, 12, 4) \
	STRUCT(kfd_ioctl_runtime_enable_args, 16) \
	FIELD(kfd_ioctl_runtime_enable_args, r_debug, 0, 8) \
	FIELD(kfd_ioctl_runtime_enable_args, mode_mask, 8, 4) \
	FIELD(kfd_ioctl_runtime_enable_args, capabilities_mask, 12, 4) \
	STRUCT(kfd_ioctl_dbg_trap_args, 32) \
	FIELD(kfd_ioctl_dbg_trap_args, pid, 0, 4) \
	FIELD(kfd_ioctl_dbg_trap_args, op, 4, 4) \
	FIELD(kfd_ioctl_dbg_trap_args, enable, 8, 0) \
	STRUCT(kfd_ioctl_profiler_args, 16) \
	FIELD(kfd_ioctl_profiler_args, op, 0, 4) \
	FIELD(kfd_ioctl_profiler_args, pmc, 4, 0) \
	STRUCT(kfd_hsa_memory_exception_data, 32) \
	FIELD(kfd_hsa_memory_exception_data, failure.NotPresent, 0, 4) \
	FIELD(kfd_hsa_memory_exception_data, failure.ReadOnly, 4, 4) \
	FIELD(kfd_hsa_memory_exception_data, failure.NoExecute, 8, 4) \
	FIELD(kfd_hsa_memory_exception_data, failure.imprecise, 12, 4) \
	FIELD(kfd_hsa_memory_exception_data, va, 16, 8) \
	FIELD(kfd_hsa_memory_exception_data, gpu_id, 24, 4) \
	FIELD(kfd_hsa_memory_exception_data, ErrorType, 28, 4) \
	STRUCT(kfd_hsa_hw_exception_data, 16) \
	FIELD(kfd_hsa_hw_exception_data, reset_type, 0, 4) \
	FIELD(kfd_hsa_hw_exception_data, reset_cause, 4, 4) \
	FIELD(kfd_hsa_hw_exception_data, memory_lost, 8, 4) \
	FIELD(kfd_hsa_hw_exception_data, gpu_id, 12, 4)

/* COMMAND(name, word). */
#define RKFD_KFD_COMMANDS \
	COMMAND(AMDKFD_IOC_GET_VERSION, 0x80084b01) \
	COMMAND(AMDKFD_IOC_CREATE_QUEUE, 0xc0604b02) \
	COMMAND(AMDKFD_IOC_DESTROY_QUEUE, 0xc0084b03) \
	COMMAND(AMDKFD_IOC_SET_MEMORY_POLICY, 0x40204b04) \
	COMMAND(AMDKFD_IOC_GET_CLOCK_COUNTERS, 0xc0284b05) \
	COMMAND(AMDKFD_IOC_GET_PROCESS_APERTURES, 0x81904b06) \
	COMMAND(AMDKFD_IOC_UPDATE_QUEUE, 0x40184b07) \
	COMMAND(AMDKFD_IOC_CREATE_EVENT, 0xc0204b08) \
	COMMAND(AMDKFD_IOC_DESTROY_EVENT, 0x40084b09) \
	COMMAND(AMDKFD_IOC_SET_EVENT, 0x40084b0a) \
	COMMAND(AMDKFD_IOC_RESET_EVENT, 0x40084b0b) \
	COMMAND(AMDKFD_IOC_WAIT_EVENTS, 0xc0184b0c) \
	COMMAND(AMDKFD_IOC_DBG_REGISTER_DEPRECATED, 0x40084b0d) \
	COMMAND(AMDKFD_IOC_DBG_UNREGISTER_DEPRECATED, 0x40084b0e) \
	COMMAND(AMDKFD_IOC_DBG_ADDRESS_WATCH_DEPRECATED, 0x40104b0f) \
	COMMAND(AMDKFD_IOC_DBG_WAVE_CONTROL_DEPRECATED, 0x40104b10) \
	COMMAND(AMDKFD_IOC_SET_SCRATCH_BACKING_VA, 0xc0104b11) \
	COMMAND(AMDKFD_IOC_GET_TILE_CONFIG, 0xc0284b12) \
	COMMAND(AMDKFD_IOC_SET_TRAP_HANDLER, 0x40184b13) \
	COMMAND(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, 0xc0104b14) \
	COMMAND(AMDKFD_IOC_ACQUIRE_VM, 0x40084b15) \
	COMMAND(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, 0xc0284b16) \
	COMMAND(AMDKFD_IOC_FREE_MEMORY_OF_GPU, 0x40084b17) \
	COMMAND(AMDKFD_IOC_MAP_MEMORY_TO_GPU, 0xc0184b18) \
	COMMAND(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, 0xc0184b19) \
	COMMAND(AMDKFD_IOC_SET_CU_MASK, 0x40104b1a) \
	COMMAND(AMDKFD_IOC_GET_QUEUE_WAVE_STATE, 0xc0184b1b) \
	COMMAND(AMDKFD_IOC_GET_DMABUF_INFO, 0xc0204b1c) \
	COMMAND(AMDKFD_IOC_IMPORT_DMABUF, 0xc0184b1d) \
	COMMAND(AMDKFD_IOC_ALLOC_QUEUE_GWS, 0xc0104b1e) \
	COMMAND(AMDKFD_IOC_SMI_EVENTS, 0xc0084b1f) \
	COMMAND(AMDKFD_IOC_SVM, 0xc0184b20) \
	COMMAND(AMDKFD_IOC_SET_XNACK_MODE, 0xc0044b21) \
	COMMAND(AMDKFD_IOC_CRIU_OP, 0xc0384b22) \
	COMMAND(AMDKFD_IOC_AVAILABLE_MEMORY, 0xc0104b23) \
	COMMAND(AMDKFD_IOC_EXPORT_DMABUF, 0xc0104b24) \
	COMMAND(AMDKFD_IOC_RUNTIME_ENABLE, 0xc0104b25) \
	COMMAND(AMDKFD_IOC_DBG_TRAP, 0xc0204b26) \
	COMMAND(AMDKFD_IOC_CREATE_PROCESS, 0x00004b27) \
	COMMAND(AMDKFD_IOC_PROFILER, 0xc0104b28)

/*
 * Ringing a doorbell. The doorbell of a queue is the aligned 64-bit word at offset
 * doorbell_offset & (RKFD_KFD_DOORBELL_BYTES - 1) of the doorbell mapping. In this order:
 *
 *  1. Store the packets. In an AQL packet the header comes last, with release order.
 *  2. Store the write pointer in memory, with release order (PM4: dwords, SDMA: bytes, AQL: packets).
 *  3. Write barrier: no store of 1 and 2 may pass the next one. On x86 a compiler barrier does, for the
 *     doorbell page is uncached; where ring or write pointer are write-combined memory (VRAM), sfence. On
 *     arm64 dmb oshst.
 *  4. Store the doorbell, 64 bits at once: PM4 and SDMA the write pointer, AQL the index of the newest packet.
 *
 * The write pointer in memory is what counts for a queue that is not on the hardware at that moment: its
 * doorbell is lost, and it is served when it is mapped again. A doorbell of no queue, or of somebody else's,
 * has no effect. The mapping is taken away while a GPU is reset (the next access waits, then finds the live
 * page) and for good when the GPU goes (SIGBUS).
 */
#define RKFD_KFD_DOORBELL_BYTES 8192

/*
 * mmap offsets of /dev/kfd: bits 63:62 kind, 61:46 GPU id. The low bits choose nothing, and are best 0: a mapping
 * that would reach from them into the range of the next GPU id is EINVAL.
 */
#define RKFD_KFD_MMAP_KIND_SHIFT 62
#define RKFD_KFD_MMAP_GPU_SHIFT 46
#define RKFD_KFD_MMAP_MMIO 0ull		/* 4096 bytes: the HDP flush registers */
#define RKFD_KFD_MMAP_DOORBELL 3ull	/* 8192 bytes: the doorbells of the process */

#endif /* RKFD_KFD_ABI_H */
