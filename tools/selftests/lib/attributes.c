// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "attributes.h"

#include <string.h>
#include <sys/mman.h>

struct args {
	uint64_t start, size;
	uint32_t op, n;
	struct attr attr[MAX_ATTRS];
};

int svm_call(const struct gpu *gpu, uint32_t op, const volatile void *at, uint64_t size, struct attr *attr, uint32_t n)
{
	struct args args = { .start = (uintptr_t)at, .size = size, .op = op, .n = n };
	int err;

	CHECK(n <= MAX_ATTRS);
	memcpy(args.attr, attr, n * sizeof(*attr));
	err = kfd_call(gpu->fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x20, 24 + 8 * n), &args);
	memcpy(attr, args.attr, n * sizeof(*attr));
	return err;
}

int svm_set(const struct gpu *gpu, const volatile void *at, uint64_t size, uint32_t type, uint32_t value)
{
	struct attr attr = { type, value };

	return svm_call(gpu, SET, at, size, &attr, 1);
}

uint32_t svm_get(const struct gpu *gpu, const volatile void *at, uint64_t size, uint32_t type)
{
	struct attr attr = { type, 0 };

	CHECK_OK(svm_call(gpu, GET, at, size, &attr, 1));
	CHECK_EQ(attr.type, type);
	return attr.value;
}

uint32_t svm_access(const struct gpu *gpu, const volatile void *at, uint64_t size)
{
	struct attr attr = { ACCESS, gpu->id };

	CHECK_OK(svm_call(gpu, GET, at, size, &attr, 1));
	CHECK_EQ(attr.value, gpu->id);
	return attr.type;
}

void need_svm_of(const struct gpu *gpu)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct attr attr = { PREFERRED, 0 };

	CHECK(p != MAP_FAILED);
	if (svm_call(gpu, GET, p, PAGE, &attr, 1) == EPERM)
		SKIP("the driver has no SVM");
	CHECK_EQ(munmap(p, PAGE), 0);
}

int set_xnack(const struct gpu *gpu, bool on)
{
	struct kfd_ioctl_set_xnack_mode_args args = { .xnack_enabled = on };

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_XNACK_MODE, &args);
}
