// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Puts one PCI device to sleep and wakes it, `rounds` times, by the calls that the PM core makes for the whole
 * system. The guest's own root is on virtio-9p, which does not come back from a system-wide sleep; so only the
 * device under test goes. Who loads this has stopped the programs that use the device (the PM core would have
 * frozen them).
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm.h>

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "PCI address, such as 0000:01:00.0");

static unsigned int rounds = 1;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "times to sleep and wake");

static unsigned int asleep_ms = 100;
module_param(asleep_ms, uint, 0444);
MODULE_PARM_DESC(asleep_ms, "how long each time");

static int call(struct device *dev, const char *phase, int (*f)(struct device *))
{
	int err = f ? f(dev) : 0;

	if (err)
		dev_err(dev, "pm_cycle: %s: %d\n", phase, err);
	return err;
}

/* The order of dpm_suspend_start() … dpm_resume_end(). What was suspended is resumed, whatever failed. */
static int cycle(struct device *dev, const struct dev_pm_ops *ops)
{
	int err, woken;

	err = call(dev, "prepare", ops->prepare);
	/* A positive answer asks to be left alone, which is for devices asleep already. */
	if (err < 0)
		return err;
	err = call(dev, "suspend", ops->suspend);
	if (err)
		goto complete;
	err = call(dev, "suspend_late", ops->suspend_late);
	if (err)
		goto resume;
	err = call(dev, "suspend_noirq", ops->suspend_noirq);
	if (err)
		goto early;
	msleep(asleep_ms);
	err = call(dev, "resume_noirq", ops->resume_noirq);
early:
	woken = call(dev, "resume_early", ops->resume_early);
	err = err ?: woken;
resume:
	woken = call(dev, "resume", ops->resume);
	err = err ?: woken;
complete:
	if (ops->complete)
		ops->complete(dev);
	return err;
}

static int __init pm_cycle_init(void)
{
	struct device *dev;
	int err = 0;

	if (!device)
		return -EINVAL;
	dev = bus_find_device_by_name(&pci_bus_type, NULL, device);
	if (!dev)
		return -ENODEV;
	device_lock(dev);
	if (!dev->driver || !pci_bus_type.pm)
		err = -ENXIO;
	for (unsigned int i = 0; !err && i < rounds; i++)
		err = cycle(dev, pci_bus_type.pm);
	device_unlock(dev);
	put_device(dev);
	return err;
}
module_init(pm_cycle_init);

static void __exit pm_cycle_exit(void)
{
}
module_exit(pm_cycle_exit);

MODULE_DESCRIPTION("Sleep and wake-up of one PCI device, for tests");
MODULE_LICENSE("Dual MIT/GPL");
