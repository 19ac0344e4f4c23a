// SPDX-License-Identifier: GPL-2.0

//! One GPU: a PCI device.
