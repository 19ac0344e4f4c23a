// SPDX-License-Identifier: GPL-2.0 OR MIT
// 2: buffers. One in VRAM and one in the machine's memory, mapped for the CPU, and bound at addresses of the GPU.
#include "tutorial.h"

#define PAGE 4096ul
#define AT 0x100000000ul

int main(int argc, char **argv)
{
	const char *node = argc > 1 ? argv[1] : "/dev/dri/renderD128";
	struct rkfd_space_info info = { .size = sizeof(info) };
	struct rkfd_bind_list *list, *beyond;
	struct rkfd_bo *vram, *system;
	volatile uint32_t *words;
	struct rkfd_space *space;

	OK(rkfd_space_open(node, &space));
	OK(rkfd_space_describe(space, &info));
	OK(rkfd_bo_new(space, RKFD_HEAP_VRAM, PAGE, &vram));
	OK(rkfd_bo_new(space, RKFD_HEAP_SYSTEM, PAGE, &system));

	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, AT, vram, 0, PAGE, RKFD_RANGE_WRITE));
	OK(rkfd_bind_list_map(list, AT + PAGE, system, 0, PAGE, RKFD_RANGE_READ));
	OK(rkfd_space_bind(space, list));
	printf("VRAM at %#lx, memory of the machine at %#lx\n", AT, AT + PAGE);

	words = rkfd_bo_cpu(vram);
	for (uint32_t i = 0; i < PAGE / 4; i++)
		words[i] = i * i;
	for (uint32_t i = 0; i < PAGE / 4; i++)
		CHECK(words[i] == i * i);
	printf("the CPU wrote to VRAM and reads: %u %u %u %u ...\n", words[0], words[1], words[2], words[3]);

	OK(rkfd_bind_list_new(space, &beyond));
	OK(rkfd_bind_list_unmap(beyond, AT, PAGE));
	OK(rkfd_bind_list_map(beyond, info.va_limit + 1, vram, 0, PAGE, RKFD_RANGE_READ));
	CHECK(rkfd_space_bind(space, beyond));
	printf("refused, and nothing of it done: %s\n", rkfd_last_error());

	rkfd_bind_list_free(beyond);
	rkfd_bind_list_free(list);
	rkfd_bo_free(system);
	rkfd_bo_free(vram);
	rkfd_space_close(space);
	return 0;
}
