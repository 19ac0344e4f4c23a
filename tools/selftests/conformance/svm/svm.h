/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What cases about SVM begin with: a GPU whose driver has the call, memory, and the call by its operations.
 */
#ifndef SVM_H
#define SVM_H

#include "attributes.h"
#include "pm4_queue.h"

#include <string.h>
#include <sys/mman.h>

/* One call; the attributes as they are after it. Returns 0 or an errno. */
static inline int svm(uint32_t op, const volatile void *at, uint64_t size, struct attr *attr, uint32_t n)
{
	return svm_call(&f.gpu, op, at, size, attr, n);
}

static inline int set1(const volatile void *at, uint64_t size, uint32_t type, uint32_t value)
{
	return svm_set(&f.gpu, at, size, type, value);
}

static inline uint32_t get1(const volatile void *at, uint64_t size, uint32_t type)
{
	return svm_get(&f.gpu, at, size, type);
}

/* How the GPU may access it: ACCESS, IN_PLACE or NO_ACCESS. */
static inline uint32_t access_of(const volatile void *at, uint64_t size)
{
	return svm_access(&f.gpu, at, size);
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
	need_vm(&f.gpu, 0);
	need_svm_of(&f.gpu);
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
