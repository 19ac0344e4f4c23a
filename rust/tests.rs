// SPDX-License-Identifier: GPL-2.0

//! KUnit suites that need more than one module.

mod driver_force_probe;
mod driver_power;
mod drm_info;
mod drm_live;
mod event_fixtures;
mod event_notices;
mod event_signals;
mod event_table;
mod gpu_alloc;
mod gpu_gate;
mod gpu_identity;
mod gpu_ih;
mod gpu_live;
mod gpu_poll;
mod gpu_reserved;
mod gpu_salvage;
mod hw_asic;
mod hw_ih;
mod hw_load;
mod hw_mqd;
mod hw_pm4;
mod hw_pte;
mod hw_runlist;
mod hw_sdma;
mod kapi_chrdev;
mod kapi_class;
mod kapi_dma;
mod kapi_machine;
mod kapi_memory;
mod kapi_slots;
mod kapi_sysfs;
mod kapi_threads;
mod kapi_user;
mod kfd_command;
mod kfd_topology;
mod queue_request;
mod vm_account;
mod vm_interval;
mod vm_live;
mod vm_live_bench;
mod vm_pt;
mod vm_pt_bench;
mod vm_pt_soak;
mod vm_rules;
