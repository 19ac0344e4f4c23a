// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line forms of inline functions and macros for the Rust side; see rkfd_helpers.h.
 */

#include <linux/pci.h>

#include "rkfd_helpers.h"

int rkfd_pci_domain_nr(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus);
}
