// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors: memory of the program at GPU addresses, of which both sides see the same, and what is refused.
 */
#include "mirror.h"

#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

CASE(both_see, "CPU and GPU see the same memory, wherever the GPU has it")
{
	static const uint64_t places[] = { AT, AT + PAGE, AT + HUGE - 3 * PAGE };
	struct engine e;

	engine_begin(&e);
	for (unsigned int i = 0; i < 3; i++) {
		struct drm_rkfd_mirror_query info;
		uint8_t *p = need_memory(1500 * PAGE);
		uint32_t id;

		fill(p, 1500, 0x1000);
		id = need_mirror(&e.file, p, places[i], 1500 * PAGE, 0);
		gpu_sees(&e, places[i], 1500, 0x1000);
		*word(p, 700 * PAGE) = 0xc0de;
		CHECK_EQ(gpu_read(&e, places[i] + 700 * PAGE), 0xc0de);
		gpu_write(&e, places[i] + 701 * PAGE + 8, 0xabc);
		CHECK_EQ(*word(p, 701 * PAGE + 8), 0xabc);
		info = mirror_query(&e.file, id);
		CHECK_EQ(info.address, (uintptr_t)p);
		CHECK_EQ(info.gpu_address, places[i]);
		CHECK_EQ(info.length, 1500 * PAGE);
		CHECK_EQ(info.flags, POPULATED);
		CHECK_EQ(info.bytes, 1500 * PAGE);
		CHECK_OK(mirror_destroy(&e.file, id));
		munmap(p, 1500 * PAGE);
	}
	engine_end(&e);
}

CASE(refused, "MIRROR_CREATE: each errno for its cause")
{
	struct drm_rkfd_mirror_create args, good;
	struct nfile file;
	uint8_t *p = need_memory(4 * PAGE);

	need_file(&file);
	good = (struct drm_rkfd_mirror_create){
		.address = (uintptr_t)p, .gpu_address = AT, .length = 4 * PAGE, .flags = POPULATED
	};
#define REFUSED(err, ...)                                                                           \
	do {                                                                                       \
		args = good;                                                                       \
		__VA_ARGS__;                                                                       \
		CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &args), err);              \
	} while (0)
	REFUSED(EINVAL, args.flags |= 16);
	REFUSED(EINVAL, args.id = 1);
	REFUSED(EINVAL, args.leaf = 1);
	REFUSED(EINVAL, args.flags = 0);
	REFUSED(EINVAL, args.length = 0);
	REFUSED(EINVAL, args.length = PAGE + 1);
	REFUSED(EINVAL, args.address += 8);
	REFUSED(EINVAL, args.gpu_address += 8);
	REFUSED(EOVERFLOW, args.address = ~0xffful);
	REFUSED(EOVERFLOW, args.gpu_address = ~0xffful; args.length = 2 * PAGE);
	REFUSED(EOVERFLOW, args.length = ~0xffful);
	REFUSED(EFAULT, args.address = 1ul << 63);
	REFUSED(EFAULT, args.address = 0xffff800000000000ul);
	REFUSED(EINVAL, args.gpu_address = file.device.va_start - PAGE);
	REFUSED(EINVAL, args.gpu_address = file.device.va_end - 3 * PAGE);
	REFUSED(EINVAL, args.gpu_address = 1ul << 48);
#undef REFUSED
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &good));
	CHECK_ERR(mirror_destroy(&file, good.id + 1), ENOENT);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_DESTROY, &(struct drm_rkfd_mirror_destroy){ good.id, 1 }), EINVAL);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_QUERY, &(struct drm_rkfd_mirror_query){ .id = 0 }), ENOENT);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_POPULATE,
			 &(struct drm_rkfd_mirror_populate){ good.id, 1, AT, PAGE }), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id + 1, AT, PAGE), ENOENT);
	CHECK_ERR(mirror_populate(&file, good.id, AT, 0), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT + 8, PAGE), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT - PAGE, PAGE), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT + 3 * PAGE, 2 * PAGE), EINVAL);
	CHECK_OK(mirror_populate(&file, good.id, AT, 4 * PAGE));
	munmap(p + PAGE, PAGE);
	CHECK_ERR(mirror_populate(&file, good.id, AT, 4 * PAGE), EFAULT);
	CHECK_OK(mirror_populate(&file, good.id, AT + 2 * PAGE, 2 * PAGE));
	CHECK_OK(mirror_destroy(&file, good.id));
	CHECK_ERR(mirror_destroy(&file, good.id), ENOENT);
	close_file(&file);
}

CASE(exclusive, "mirrors and buffers share no GPU addresses; what ended leaves them free")
{
	struct drm_rkfd_mirror_create args;
	struct nfile file;
	struct nbo bo;
	uint8_t *p = need_memory(8 * PAGE);
	uint32_t id;

	need_file(&file);
	need_nbo(&file, &bo, VRAM, 4 * PAGE);
	CHECK_OK(bind_one(&file, AT, 4 * PAGE, bo.handle, 0));
	CHECK_ERR(mirror_create(&file, p, AT + 3 * PAGE, 4 * PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(mirror_create(&file, p, AT - 3 * PAGE, 4 * PAGE, 0, &args), EADDRINUSE);
	id = need_mirror(&file, p, AT + 4 * PAGE, 4 * PAGE, 0);
	CHECK_ERR(mirror_create(&file, p, AT + 4 * PAGE, PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(mirror_create(&file, p, AT + 7 * PAGE, 2 * PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(bind_one(&file, AT + 7 * PAGE, PAGE, bo.handle, 0), EADDRINUSE);
	CHECK_ERR(bind_one(&file, AT + PAGE, 4 * PAGE, bo.handle, 0), EADDRINUSE);
	CHECK_ERR(unbind_one(&file, AT, 1ul << 30), EADDRINUSE);
	/* The same memory twice is fine. */
	CHECK_OK(mirror_create(&file, p, AT + 8 * PAGE, 8 * PAGE, 0, &args));
	CHECK_OK(mirror_destroy(&file, args.id));
	CHECK_OK(mirror_destroy(&file, id));
	CHECK_OK(bind_one(&file, AT + 4 * PAGE, 4 * PAGE, bo.handle, 0));
	CHECK_OK(unbind_one(&file, AT, 1ul << 30));
	drop_nbo(&file, &bo);
	close_file(&file);
}

CASE(large, "a large page of the program is one of the GPU, where both addresses allow it")
{
	struct drm_rkfd_mirror_create args;
	struct engine e;
	uint8_t *p = need_aligned(2 * HUGE);

	engine_begin(&e);
	madvise(p, 2 * HUGE, MADV_HUGEPAGE);
	fill(p, 1024, 0x2000);
	if (madvise(p, 2 * HUGE, MADV_COLLAPSE))
		SKIP("no large pages here");
	CHECK_OK(mirror_create(&e.file, p, AT, 2 * HUGE, 0, &args));
	CHECK_EQ(args.leaf, HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).bytes, 2 * HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, 2 * HUGE);
	gpu_sees(&e, AT, 1024, 0x2000);
	/* One page of it differs: the rest is found again, too. */
	CHECK_EQ(mprotect(p + 5 * PAGE, PAGE, PROT_READ), 0);
	gpu_sees(&e, AT, 1024, 0x2000);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).bytes, 2 * HUGE);
	gpu_write(&e, AT + 6 * PAGE, 0x77);
	CHECK_EQ(*word(p, 6 * PAGE), 0x77);
	CHECK_EQ(*word(p, 5 * PAGE), 0x2005);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	CHECK_OK(mirror_create(&e.file, p, AT + 16 * PAGE, 2 * HUGE, 0, &args));
	CHECK_EQ(args.leaf, 16 * PAGE);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, 0);
	CHECK_EQ(gpu_read(&e, AT + 16 * PAGE + HUGE), 0x2000 + 512);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	engine_end(&e);
}

CASE(untouched, "memory that nobody has touched reads as zeroes, and what the GPU writes there stays")
{
	struct engine e;
	uint8_t *p = need_memory(64 * PAGE);

	engine_begin(&e);
	/* One page is the zero page by now. */
	CHECK_EQ(*word(p, 3 * PAGE), 0);
	need_mirror(&e.file, p, AT, 64 * PAGE, 0);
	for (unsigned int i = 0; i < 64; i += 3) {
		CHECK_EQ(gpu_read(&e, AT + i * PAGE), 0);
		gpu_write(&e, AT + i * PAGE, 0x100 + i);
	}
	for (unsigned int i = 0; i < 64; i++)
		CHECK_EQ(*word(p, i * PAGE), i % 3 ? 0 : 0x100 + i);
	engine_end(&e);
}

CASE(read_only, "what is mirrored for reading cannot be written by the GPU, and the program's copy stays shared")
{
	struct drm_rkfd_mirror_create args;
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);

	engine_begin(&e);
	fill(p, 4, 0x50);
	CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, RO, &args));
	CHECK_EQ(mirror_query(&e.file, args.id).flags, RO | POPULATED);
	gpu_sees(&e, AT, 4, 0x50);
	*word(p, 0) = 0x51;
	CHECK_EQ(gpu_read(&e, AT), 0x51);
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	CHECK_EQ(*word(p, PAGE), 0x51);
}
