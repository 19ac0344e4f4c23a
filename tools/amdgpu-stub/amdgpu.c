// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * An empty module whose only purpose is its name. rocminfo refuses to start unless
 * /sys/module/amdgpu/initstate says "live"; it never looks further. Loaded by scripts/vm or
 * by hand, never installed: on a machine with a real amdgpu it would be in the way.
 */
#include <linux/init.h>
#include <linux/module.h>

static int __init amdgpu_stub_init(void)
{
	return 0;
}
module_init(amdgpu_stub_init);

static void __exit amdgpu_stub_exit(void)
{
}
module_exit(amdgpu_stub_exit);

MODULE_DESCRIPTION("Name-only stand-in for amdgpu, for rocminfo with rkfd");
MODULE_LICENSE("Dual MIT/GPL");
