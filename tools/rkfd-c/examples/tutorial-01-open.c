// SPDX-License-Identifier: GPL-2.0 OR MIT
// 1: opens a render node. What that gives is an address space of the GPU, empty and nobody else's.
#include "tutorial.h"

int main(int argc, char **argv)
{
	const char *node = argc > 1 ? argv[1] : "/dev/dri/renderD128";
	struct rkfd_space_info info = { .size = sizeof(info) };
	struct rkfd_space *space;

	OK(rkfd_space_open(node, &space));
	OK(rkfd_space_describe(space, &info));
	printf("%s: %s, %u compute units, waves of %u work-items, %u copy engines\n", node,
	       gfx(info.gfx_target_version), info.compute_units, info.wavefront_size, info.sdma_engines);
	printf("addresses from %#lx to %#lx, pages of", info.va_base, info.va_limit);
	for (unsigned int bit = 0; bit < 64; bit++)
		if (info.page_sizes >> bit & 1)
			printf(" %lu KiB", (1ul << bit) / 1024);
	printf("\n");
	CHECK(info.gfx_target_version / 10000 == 9);
	CHECK(info.va_base < info.va_limit);
	rkfd_space_close(space);
	return 0;
}
