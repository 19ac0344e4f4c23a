// SPDX-License-Identifier: GPL-2.0 OR MIT
// 3: a queue. Two packets for a copy engine: one that stores 16 bytes, and one that says so.
#include "tutorial.h"

#include <unistd.h>

#define PAGE 4096ul
#define AT 0x100000000ul
#define FENCE_AT (AT + 64)
#define QUEUE_AT 0x200000000ul
#define LOW(address) (uint32_t)(address)
#define HIGH(address) (uint32_t)((address) >> 32)

int main(int argc, char **argv)
{
	const char *node = argc > 1 ? argv[1] : "/dev/dri/renderD128";
	struct rkfd_space_queue *queue;
	struct rkfd_bind_list *list;
	struct rkfd_space *space;
	struct rkfd_bo *bo;
	uint32_t *fence;
	char *text;

	OK(rkfd_space_open(node, &space));
	OK(rkfd_bo_new(space, RKFD_HEAP_SYSTEM, PAGE, &bo));
	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, AT, bo, 0, PAGE, RKFD_RANGE_WRITE));
	OK(rkfd_space_bind(space, list));
	OK(rkfd_space_queue_new(space, RKFD_QUEUE_SDMA, QUEUE_AT, &queue));
	text = rkfd_bo_cpu(bo);
	fence = (uint32_t *)(text + 64);

	uint32_t packets[] = {
		2,				/* WRITE, linear */
		LOW(AT), HIGH(AT),		/* where to */
		4 - 1,				/* how many dwords follow, less 1 */
		0, 0, 0, 0,
		5,				/* FENCE */
		LOW(FENCE_AT), HIGH(FENCE_AT),	/* where to */
		1,				/* what is stored when all before is done */
	};
	memcpy(packets + 4, "Hello from SDMA", 16);
	OK(rkfd_space_queue_submit(queue, packets, sizeof(packets) / 4));

	for (unsigned int ms = 0; __atomic_load_n(fence, __ATOMIC_ACQUIRE) != 1; ms++) {
		CHECK(ms < LIMIT_MS);
		usleep(1000);
	}
	printf("the fence is %u, and the memory says: %s\n", *fence, text);
	CHECK(!strcmp(text, "Hello from SDMA"));

	rkfd_space_queue_free(queue);
	rkfd_bind_list_free(list);
	rkfd_bo_free(bo);
	rkfd_space_close(space);
	return 0;
}
