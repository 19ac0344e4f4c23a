/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Memory of another driver: dma-bufs that udmabuf makes of pages of a memfd, in any order.
 */
#ifndef UDMABUF_H
#define UDMABUF_H

#include "kfd.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* A memfd, what the CPU sees of it, and a dma-buf of some of its pages; -1 and NULL for what was given up. */
struct udmabuf {
	int memfd, fd;
	uint64_t size; /* Bytes of the memfd. */
	uint8_t *cpu;
};

/* The pages of the memfd whose numbers are in `order`, one behind the other; all of them in their order if it is NULL. */
static inline void need_udmabuf(struct udmabuf *u, uint32_t pages, const uint32_t *order, uint32_t count)
{
	struct udmabuf_create_list *list;
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	if (dev < 0)
		SKIP("no /dev/udmabuf: %s", strerror(errno));
	if (!order)
		count = 1;
	u->size = pages * PAGE;
	u->memfd = memfd_create("shared", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	CHECK(u->memfd >= 0);
	CHECK_EQ(ftruncate(u->memfd, (off_t)u->size), 0);
	CHECK_EQ(fcntl(u->memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	u->cpu = mmap(NULL, u->size, PROT_READ | PROT_WRITE, MAP_SHARED, u->memfd, 0);
	CHECK(u->cpu != MAP_FAILED);
	list = calloc(1, sizeof(*list) + count * sizeof(list->list[0]));
	CHECK(list);
	list->flags = UDMABUF_FLAGS_CLOEXEC;
	list->count = count;
	for (uint32_t i = 0; i < count; i++)
		list->list[i] = (struct udmabuf_create_item){
			.memfd = (uint32_t)u->memfd,
			.offset = order ? order[i] * PAGE : 0,
			.size = order ? PAGE : u->size,
		};
	u->fd = ioctl(dev, UDMABUF_CREATE_LIST, list);
	if (u->fd < 0)
		FAIL("UDMABUF_CREATE_LIST: %s", strerror(errno));
	free(list);
	close(dev);
}

static inline volatile uint32_t *udmabuf32(const struct udmabuf *u, uint64_t offset)
{
	return (volatile uint32_t *)(u->cpu + offset);
}

/*
 * Waits until nobody has the pages but the memfd, of which `memfd` is a descriptor and which is mapped nowhere: only then it
 * can be sealed against writes, which dma-bufs do without asking.
 */
static inline void await_unshared(int memfd)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE)) {
		if (errno != EBUSY)
			FAIL("F_SEAL_WRITE: %s", strerror(errno));
		if (now_ms() > end)
			FAIL("pages of the memfd are still in use");
		usleep(2000);
	}
}

/* Whether somebody else has pages, as above. */
static inline bool is_shared(int memfd)
{
	int err = fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE) ? errno : 0;

	if (err && err != EBUSY)
		FAIL("F_SEAL_WRITE: %s", strerror(err));
	return err == EBUSY;
}

#endif
