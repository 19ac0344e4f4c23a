// SPDX-License-Identifier: GPL-2.0
/*
 * The driver core meets a second class of one name with a warning and a stack dump, and has no way
 * to ask before. The directory in sysfs tells.
 */

#include <linux/kernfs.h>
#include <linux/kobject.h>
#include <linux/rcupdate.h>

#include "rkfd_helpers.h"

/* Whether /sys/class/@name exists. */
bool rkfd_class_exists(const char *name)
{
	struct kernfs_node *root, *classes, *class;

	/* /sys/kernel lies in the root, which stays as long as the system runs. */
	rcu_read_lock();
	root = rcu_dereference(kernel_kobj->sd->__parent);
	rcu_read_unlock();
	classes = kernfs_find_and_get(root, "class");
	if (!classes)
		return false;
	class = kernfs_find_and_get(classes, name);
	kernfs_put(classes);
	kernfs_put(class);
	return class;
}
