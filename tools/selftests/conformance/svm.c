// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: attributes of ranges of the program's memory: what is refused, what is read back, and when they end.
 */
#include "svm/svm.h"

#include <sys/mman.h>

CASE(unknown, "SVM: an unknown operation, attribute, location or GPU is EINVAL, and nothing of the list is set")
{
	static const uint32_t located[] = { PREFERRED, PREFETCH, ACCESS, IN_PLACE, NO_ACCESS };
	struct attr list[2];
	uint8_t *p;

	need_svm();
	p = memory(4 * PAGE);
	CHECK_ERR(set1(p, PAGE, 8, 0), EINVAL);
	for (unsigned int i = 0; i < 5; i++) {
		list[0] = (struct attr){ GRANULARITY, 3 };
		list[1] = (struct attr){ located[i], f.gpu.id ^ 0x5555 };
		CHECK_ERR(svm(SET, p, PAGE, list, 2), EINVAL);
	}
	CHECK_ERR(set1(p, PAGE, PREFETCH, UNDEFINED), EINVAL);
	CHECK_OK(set1(p, PAGE, PREFERRED, UNDEFINED));
	CHECK_EQ(get1(p, PAGE, GRANULARITY), 9);
	list[0] = (struct attr){ GRANULARITY, 3 };
	CHECK_ERR(svm(2, p, PAGE, list, 1), EINVAL);
	list[0] = (struct attr){ IN_PLACE, f.gpu.id };
	CHECK_ERR(svm(GET, p, PAGE, list, 1), EINVAL);
	list[0] = (struct attr){ NO_ACCESS, f.gpu.id };
	CHECK_ERR(svm(GET, p, PAGE, list, 1), EINVAL);
	list[0] = (struct attr){ ACCESS, f.gpu.id ^ 0x5555 };
	CHECK_ERR(svm(GET, p, PAGE, list, 1), EINVAL);
}

CASE(no_vm, "SVM: before ACQUIRE_VM it is EINVAL")
{
	struct attr attr = { GRANULARITY, 3 };
	uint8_t *p = memory(PAGE);
	int err;

	need_gpu(&f.gpu, 0);
	err = svm(SET, p, PAGE, &attr, 1);
	if (err == EPERM)
		SKIP("the driver has no SVM");
	CHECK_ERR(err, EINVAL);
}

CASE(bad_range, "SVM: a range that wraps is EOVERFLOW; one with a hole, or over registers, EFAULT")
{
	uint8_t *p;

	begin_svm();
	p = memory(8 * PAGE);
	CHECK_ERR(set1((void *)-PAGE, 2 * PAGE, GRANULARITY, 3), EOVERFLOW);
	CHECK_EQ(munmap(p + 3 * PAGE, PAGE), 0);
	CHECK_ERR(set1(p, 8 * PAGE, GRANULARITY, 3), EFAULT);
	CHECK_EQ(get1(p, 3 * PAGE, GRANULARITY), 9);
	CHECK_OK(set1(p, 3 * PAGE, GRANULARITY, 3));
	CHECK_OK(set1(p + 4 * PAGE, 4 * PAGE, GRANULARITY, 3));
	CHECK_ERR(set1(f.q.slice, DOORBELL_SLICE, GRANULARITY, 3), EFAULT);
}

CASE(beside_buffers, "SVM: buffers and attributes exclude each other, EADDRINUSE both ways")
{
	struct bo bo, wrapped;
	uint8_t *p, *q;

	need_svm();
	p = memory(4 * PAGE);
	q = memory(4 * PAGE);
	CHECK_OK(bo_wrap(&f.gpu, &wrapped, FLAGS_USERPTR, p, 4 * PAGE));
	CHECK_OK(bo_map(&f.gpu, &wrapped));
	CHECK_ERR(set1(p, PAGE, GRANULARITY, 3), EADDRINUSE);
	CHECK_OK(bo_unmap(&f.gpu, &wrapped));
	CHECK_OK(set1(p, PAGE, GRANULARITY, 3));
	CHECK_OK(bo_free(&f.gpu, &wrapped));
	CHECK_OK(set1(q + PAGE, PAGE, GRANULARITY, 3));
	CHECK_ERR(bo_wrap(&f.gpu, &bo, FLAGS_USERPTR, q, 4 * PAGE), EADDRINUSE);
	CHECK_EQ(munmap(q, 4 * PAGE), 0);
	CHECK(mmap(q, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q);
	CHECK_OK(bo_wrap(&f.gpu, &bo, FLAGS_USERPTR, q, 4 * PAGE));
	CHECK_OK(bo_free(&f.gpu, &bo));
}

CASE(defaults, "SVM: memory without attributes has the defaults")
{
	uint8_t *p;

	need_svm();
	p = memory(4 * PAGE);
	CHECK_EQ(get1(p, 4 * PAGE, PREFERRED), UNDEFINED);
	CHECK_EQ(get1(p, 4 * PAGE, PREFETCH), UNDEFINED);
	CHECK_EQ(get1(p, 4 * PAGE, SET_FLAGS), DEFAULT_FLAGS);
	CHECK_EQ(get1(p, 4 * PAGE, CLR_FLAGS), ~(uint32_t)DEFAULT_FLAGS);
	CHECK_EQ(get1(p, 4 * PAGE, GRANULARITY), 9);
	CHECK_EQ(access_of(p, 4 * PAGE), NO_ACCESS);
}

CASE(read_back, "SVM: what is set is read back, the last of a list wins, and flags gather")
{
	struct attr list[] = { { PREFERRED, 0 },	 { GRANULARITY, 3 },	 { SET_FLAGS, 0x30 },
			       { CLR_FLAGS, 0x21 },	 { GRANULARITY, 100 },	 { ACCESS, 0 },
			       { IN_PLACE, 0 },		 { PREFETCH, 0 } };
	uint8_t *p;

	need_svm();
	p = memory(4 * PAGE);
	list[5].value = list[6].value = f.gpu.id;
	CHECK_OK(svm(SET, p, 4 * PAGE, list, 8));
	CHECK_EQ(get1(p, 4 * PAGE, PREFERRED), 0);
	CHECK_EQ(get1(p, 4 * PAGE, PREFETCH), 0);
	CHECK_EQ(get1(p, 4 * PAGE, SET_FLAGS), 0x12);
	CHECK_EQ(get1(p, 4 * PAGE, CLR_FLAGS), ~0x12u);
	CHECK_EQ(get1(p, 4 * PAGE, GRANULARITY), 0x3f);
	CHECK_EQ(access_of(p, 4 * PAGE), IN_PLACE);
	CHECK_OK(set1(p, 4 * PAGE, PREFERRED, f.gpu.id));
	CHECK_EQ(get1(p, 4 * PAGE, PREFERRED), f.gpu.id);
	CHECK_OK(set1(p, 4 * PAGE, NO_ACCESS, f.gpu.id));
	CHECK_EQ(access_of(p, 4 * PAGE), NO_ACCESS);
}

CASE(parts, "SVM: of ranges with different attributes what they have in common is reported")
{
	uint8_t *p;

	need_svm();
	p = memory(12 * PAGE);
	CHECK_OK(set1(p, 12 * PAGE, ACCESS, f.gpu.id));
	CHECK_OK(set1(p, 12 * PAGE, PREFERRED, 0));
	CHECK_OK(set1(p + 4 * PAGE, 4 * PAGE, IN_PLACE, f.gpu.id));
	CHECK_OK(set1(p + 4 * PAGE, 4 * PAGE, PREFERRED, f.gpu.id));
	CHECK_OK(set1(p + 5 * PAGE, PAGE, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_RO));
	CHECK_OK(set1(p + 6 * PAGE, PAGE, GRANULARITY, 2));
	CHECK_EQ(access_of(p, 4 * PAGE), ACCESS);
	CHECK_EQ(access_of(p + 4 * PAGE, 4 * PAGE), IN_PLACE);
	CHECK_EQ(access_of(p, 12 * PAGE), NO_ACCESS);
	CHECK_EQ(get1(p, 12 * PAGE, PREFERRED), UNDEFINED);
	CHECK_EQ(get1(p + 5 * PAGE, 2 * PAGE, PREFERRED), f.gpu.id);
	CHECK_EQ(get1(p + 5 * PAGE, PAGE, SET_FLAGS), DEFAULT_FLAGS | KFD_IOCTL_SVM_FLAG_GPU_RO);
	CHECK_EQ(get1(p, 12 * PAGE, SET_FLAGS), DEFAULT_FLAGS);
	CHECK_EQ(get1(p, 12 * PAGE, CLR_FLAGS), ~(uint32_t)(DEFAULT_FLAGS | KFD_IOCTL_SVM_FLAG_GPU_RO));
	CHECK_EQ(get1(p, 12 * PAGE, GRANULARITY), 2);
	CHECK_EQ(get1(p + 8 * PAGE, 4 * PAGE, GRANULARITY), 9);
}

CASE(gone, "SVM: attributes end with munmap, also in the midst of a range, and no sooner")
{
	uint8_t *p;

	need_svm();
	p = memory(12 * PAGE);
	CHECK_OK(set1(p, 12 * PAGE, GRANULARITY, 2));
	CHECK_EQ(madvise(p, 12 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(mprotect(p, 12 * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(p, 12 * PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(get1(p, 12 * PAGE, GRANULARITY), 2);
	CHECK_EQ(munmap(p + 4 * PAGE, 4 * PAGE), 0);
	CHECK(mmap(p + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      p + 4 * PAGE);
	CHECK_EQ(get1(p + 4 * PAGE, 4 * PAGE, GRANULARITY), 9);
	CHECK_EQ(get1(p, 4 * PAGE, GRANULARITY), 2);
	CHECK_EQ(get1(p + 8 * PAGE, 4 * PAGE, GRANULARITY), 2);
	CHECK(mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	CHECK_EQ(get1(p, PAGE, GRANULARITY), 9);
}
