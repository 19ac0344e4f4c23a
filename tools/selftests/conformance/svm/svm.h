/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What cases about SVM begin with: a GPU whose driver has the call, memory, and the call by its operations.
 */
#ifndef SVM_H
#define SVM_H

#include "pm4_queue.h"

#include <string.h>
#include <sys/mman.h>

#define PREFERRED KFD_IOCTL_SVM_ATTR_PREFERRED_LOC
#define PREFETCH KFD_IOCTL_SVM_ATTR_PREFETCH_LOC
#define ACCESS KFD_IOCTL_SVM_ATTR_ACCESS
#define IN_PLACE KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE
#define NO_ACCESS KFD_IOCTL_SVM_ATTR_NO_ACCESS
#define SET_FLAGS KFD_IOCTL_SVM_ATTR_SET_FLAGS
#define CLR_FLAGS KFD_IOCTL_SVM_ATTR_CLR_FLAGS
#define GRANULARITY KFD_IOCTL_SVM_ATTR_GRANULARITY
#define SET KFD_IOCTL_SVM_OP_SET_ATTR
#define GET KFD_IOCTL_SVM_OP_GET_ATTR
#define DEFAULT_FLAGS (KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT)
#define UNDEFINED KFD_IOCTL_SVM_LOCATION_UNDEFINED

struct attr {
	uint32_t type, value;
};

struct args {
	uint64_t start, size;
	uint32_t op, n;
	struct attr attr[8];
};

/* One call; the attributes as they are after it. Returns 0 or an errno. */
static inline int svm(uint32_t op, const volatile void *at, uint64_t size, struct attr *attr, uint32_t n)
{
	struct args args = { .start = (uintptr_t)at, .size = size, .op = op, .n = n };
	int err;

	CHECK(n <= 8);
	memcpy(args.attr, attr, n * sizeof(*attr));
	err = kfd_call(f.gpu.fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x20, 24 + 8 * n), &args);
	memcpy(attr, args.attr, n * sizeof(*attr));
	return err;
}

static inline int set1(const volatile void *at, uint64_t size, uint32_t type, uint32_t value)
{
	struct attr attr = { type, value };

	return svm(SET, at, size, &attr, 1);
}

static inline uint32_t get1(const volatile void *at, uint64_t size, uint32_t type)
{
	struct attr attr = { type, 0 };

	CHECK_OK(svm(GET, at, size, &attr, 1));
	CHECK_EQ(attr.type, type);
	return attr.value;
}

/* How the GPU may access it: ACCESS, IN_PLACE or NO_ACCESS. */
static inline uint32_t access_of(const volatile void *at, uint64_t size)
{
	struct attr attr = { ACCESS, f.gpu.id };

	CHECK_OK(svm(GET, at, size, &attr, 1));
	CHECK_EQ(attr.value, f.gpu.id);
	return attr.type;
}

static inline uint8_t *memory(uint64_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* A GPU whose driver has the call. */
static inline void need_svm(void)
{
	struct attr attr = { PREFERRED, 0 };
	uint8_t *p;

	need_vm(&f.gpu, 0);
	p = memory(PAGE);
	if (svm(GET, p, PAGE, &attr, 1) == EPERM)
		SKIP("the driver has no SVM");
	CHECK_EQ(munmap(p, PAGE), 0);
}

/* … with a queue, and memory that its packets write. */
static inline void begin_svm(void)
{
	need_svm();
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	f.p.n = 0;
}

#endif
