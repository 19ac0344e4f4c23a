// SPDX-License-Identifier: GPL-2.0 OR MIT
// 4: a mirror. The GPU gets memory of the program, at the address that it has for the program.
#include "tutorial.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define QUEUE_AT 0x200000000ul
#define LOW(address) (uint32_t)(uintptr_t)(address)
#define HIGH(address) (uint32_t)((uintptr_t)(address) >> 32)

int main(int argc, char **argv)
{
	const char *node = argc > 1 ? argv[1] : "/dev/dri/renderD128";
	struct rkfd_mirror_info info = { .size = sizeof(info) };
	struct rkfd_space_queue *queue;
	struct rkfd_mirror *mirror;
	struct rkfd_space *space;
	char *from, *to;
	uint32_t *fence;
	int rc;

	from = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(from != MAP_FAILED);
	to = from + PAGE;
	fence = (uint32_t *)(to + 64);

	struct rkfd_mirror_options options = {
		.size = sizeof(options), .rights = RKFD_RANGE_WRITE, .filling = RKFD_FILLING_ON_ACCESS,
		.memory = from, .bytes = 2 * PAGE, .address = (uintptr_t)from,
	};
	OK(rkfd_space_open(node, &space));
	rc = rkfd_mirror_new(space, &options, &mirror);
	if (rc == -EOPNOTSUPP) {
		options.filling = RKFD_FILLING_AT_ONCE;
		rc = rkfd_mirror_new(space, &options, &mirror);
	}
	OK(rc);
	OK(rkfd_space_queue_new(space, RKFD_QUEUE_SDMA, QUEUE_AT, &queue));

	strcpy(from, "no buffer, no copy of the library's");
	const uint32_t packets[] = {
		1, 64 - 1, 0,			/* COPY, linear: how many bytes, less 1; 0 */
		LOW(from), HIGH(from), LOW(to), HIGH(to),
		5, LOW(fence), HIGH(fence), 1,	/* FENCE */
	};
	OK(rkfd_space_queue_submit(queue, packets, sizeof(packets) / 4));
	for (unsigned int ms = 0; __atomic_load_n(fence, __ATOMIC_ACQUIRE) != 1; ms++) {
		CHECK(ms < LIMIT_MS);
		usleep(1000);
	}
	OK(rkfd_mirror_describe(mirror, &info));
	printf("filled %s; the GPU reaches %lu bytes\n",
	       options.filling == RKFD_FILLING_ON_ACCESS ? "by accesses" : "at once", info.shown);
	printf("copied by pointers: %s\n", to);
	CHECK(!strcmp(to, from) && info.shown > 0);

	munmap(from, 2 * PAGE);
	OK(rkfd_mirror_describe(mirror, &info));
	printf("after munmap it reaches %lu\n", info.shown);
	CHECK(info.shown == 0);

	rkfd_space_queue_free(queue);
	rkfd_mirror_free(mirror);
	rkfd_space_close(space);
	return 0;
}
