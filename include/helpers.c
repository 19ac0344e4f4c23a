// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line forms of inline functions and macros for the Rust side; see rkfd_helpers.h.
 */

#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/compat.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#include "rkfd_helpers.h"

int rkfd_pci_domain_nr(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus);
}

/* Marks the running test as skipped; it goes on and should return. */
void rkfd_kunit_skip(const char *reason)
{
	struct kunit *test = kunit_get_current_test();

	if (test)
		kunit_mark_skipped(test, "%s", reason);
}

bool rkfd_in_compat_syscall(void)
{
	return in_compat_syscall();
}

bool rkfd_access_ok(u64 addr, u64 len)
{
	return access_ok((void __user *)(uintptr_t)addr, len);
}

unsigned int rkfd_jiffies_to_msecs(unsigned long jiffies)
{
	return jiffies_to_msecs(jiffies);
}

void rkfd_sysfs_attr_init(struct attribute *attr)
{
	sysfs_attr_init(attr);
}

/* Device memory: uncached, not inherited, not dumped, never grown. */
void rkfd_vma_set_io(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_NORESERVE |
			  VM_DONTDUMP);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
}
