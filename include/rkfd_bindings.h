/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input of the driver's own bindgen run. Each header is here because include/bindgen_parameters
 * names something from it that the kernel crate's bindings lack.
 */
#ifndef RKFD_BINDINGS_H
#define RKFD_BINDINGS_H

/* First: some headers test for it. */
#include <linux/kconfig.h>
#include <linux/types.h>

#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/pci.h>

#include "rkfd_helpers.h"
#include "rkfd_trace.h"

#endif /* RKFD_BINDINGS_H */
