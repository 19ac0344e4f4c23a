// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters that are text: the Rust module! macro knows numbers only.
 */

#include <linux/moduleparam.h>

#include "rkfd_helpers.h"

static char *rkfd_force_probe_list = "";
module_param_named(force_probe, rkfd_force_probe_list, charp, 0400);
MODULE_PARM_DESC(force_probe,
		 "Cards to bind although they are not the GPU model: comma-separated PCI device ids, * for all; !id or !* never binds");

static char *rkfd_reserved_vram_list = "";
module_param_named(reserved_vram, rkfd_reserved_vram_list, charp, 0400);
MODULE_PARM_DESC(reserved_vram,
		 "VRAM that firmware uses or that is defective, which a card does not tell: none, or SIZE@START with commas; a card is not bound without it");

/* Fixed once the module is loaded; never null. */
const char *rkfd_force_probe(void)
{
	return rkfd_force_probe_list;
}

/* Likewise. */
const char *rkfd_reserved_vram(void)
{
	return rkfd_reserved_vram_list;
}
