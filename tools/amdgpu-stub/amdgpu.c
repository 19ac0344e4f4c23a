// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A module that has amdgpu's name and what ROCm programs read under /sys/module/amdgpu, and does nothing.
 * rocminfo, amd-smi and others refuse to start unless initstate there says "live"; KFDTest, rocrtst and
 * older versions of libhsakmt read parameters. Loaded by scripts/vm or by hand, never installed: on a
 * machine with a real amdgpu it would be in the way.
 *
 * The values are those that rkfd has. Some follow from how rkfd works and are fixed; those that rkfd has as
 * parameters are parameters here, too, by amdgpu's names and with rkfd's defaults: who loads rkfd with others loads
 * this module with the same.
 */
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/sysfs.h>

/* Subsystem of the device model; no card has it. */
#define MODEL_SUBVENDOR 0x1af4
#define MODEL_SUBDEVICE 0x6b66

/* Parameters of rkfd */

static int sched_policy;
module_param(sched_policy, int, 0444);
MODULE_PARM_DESC(sched_policy, "rkfd's sched_policy (default: 0)");

static int hws_max_conc_proc = -1;
module_param(hws_max_conc_proc, int, 0444);
MODULE_PARM_DESC(hws_max_conc_proc, "rkfd's hws_max_conc_proc (default: -1)");

static int queue_preemption_timeout_ms = 9000;
module_param(queue_preemption_timeout_ms, int, 0444);
MODULE_PARM_DESC(queue_preemption_timeout_ms, "rkfd's preempt_timeout_ms (default: 9000)");

static int max_num_of_queues_per_device = 4096;
module_param(max_num_of_queues_per_device, int, 0444);
MODULE_PARM_DESC(max_num_of_queues_per_device, "rkfd's max_queues (default: 4096)");

/* A flag in rkfd, a number in amdgpu. */
static int set_flag(const char *text, const struct kernel_param *param)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (!error)
		*(int *)param->arg = on;
	return error;
}

static const struct kernel_param_ops flag_ops = { .set = set_flag, .get = param_get_int };

static int gpu_recovery = 1;
module_param_cb(gpu_recovery, &flag_ops, &gpu_recovery, 0444);
MODULE_PARM_DESC(gpu_recovery, "rkfd's gpu_recovery (default: 1)");

/* What cannot be chosen */

static int refuse(const char *text, const struct kernel_param *param)
{
	pr_err("amdgpu: %s cannot be set: it says how rkfd works\n", param->name);
	return -EINVAL;
}

static int get_fixed(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", (const char *)param->arg);
}

static const struct kernel_param_ops fixed_ops = { .set = refuse, .get = get_fixed };

#define FIXED(name, value, why)                                        \
	module_param_cb(name, &fixed_ops, (void *)(value), 0444);      \
	MODULE_PARM_DESC(name, why)

FIXED(cwsr_enable, "1", "descriptors of compute queues name a save area");
FIXED(debug_evictions, "N", "tracepoints tell of evictions, not the kernel log");
FIXED(halt_if_hws_hang, "0", "a GPU whose scheduler hangs is reset");
FIXED(hws_gws_support, "N", "the version of the firmware decides");
FIXED(mtype_local, "-1", "the ASIC decides how local memory is cached");
FIXED(no_queue_eviction_on_vm_fault, "0", "a memory fault stops the queues of its process");
FIXED(no_system_mem_limit, "N", "buffers in system memory have a limit");
FIXED(noretry, "-1", "ASIC and process (SET_XNACK_MODE) decide about retry faults");
FIXED(pcie_p2p, "N", "a GPU cannot map the memory of another");
FIXED(send_sigterm, "0", "processes get events, no signals");
FIXED(vm_size, "-1", "address spaces are as large as the ASIC's page tables allow");

/* Programs that know of emulators do less on them. */
static int get_emu_mode(char *buffer, const struct kernel_param *param)
{
	struct pci_dev *model = pci_get_subsys(PCI_VENDOR_ID_ATI, PCI_ANY_ID, MODEL_SUBVENDOR, MODEL_SUBDEVICE, NULL);

	pci_dev_put(model);
	return sysfs_emit(buffer, "%d\n", model ? 1 : 0);
}

static const struct kernel_param_ops emu_mode_ops = { .set = refuse, .get = get_emu_mode };

module_param_cb(emu_mode, &emu_mode_ops, NULL, 0444);
MODULE_PARM_DESC(emu_mode, "1 where a GPU is the device model");

static int __init amdgpu_stub_init(void)
{
	return 0;
}
module_init(amdgpu_stub_init);

static void __exit amdgpu_stub_exit(void)
{
}
module_exit(amdgpu_stub_exit);

MODULE_DESCRIPTION("Stand-in for amdgpu's name and parameters, for ROCm programs with rkfd");
MODULE_LICENSE("Dual MIT/GPL");
