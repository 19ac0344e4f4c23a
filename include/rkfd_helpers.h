/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Out-of-line forms of inline functions and macros that Rust cannot call. One line each; the
 * definitions are in helpers.c. Every name starts with rkfd_ and is thereby on the allow list.
 */
#ifndef RKFD_HELPERS_H
#define RKFD_HELPERS_H

#include <linux/types.h>

struct pci_dev;

int rkfd_pci_domain_nr(struct pci_dev *pdev);

#endif /* RKFD_HELPERS_H */
