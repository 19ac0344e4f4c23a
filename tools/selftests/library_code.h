/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases share that run compiled kernels: those of kernels/, compiled beside this program. */
#ifndef LIBRARY_CODE_H
#define LIBRARY_CODE_H

#include "library.h"

static struct rkfd_program *program;

/* The compiled kernels for the GPU. */
static inline void *code(const char *name, uint64_t *bytes)
{
	struct rkfd_gpu_info info = { .size = sizeof(info) };
	const char *root = getenv("RKFD_KERNELS");
	char path[512];
	FILE *file;
	void *image;
	long end;

	OK(rkfd_gpu_describe(gpu, &info));
	if (!root)
		SKIP("RKFD_KERNELS names no directory of compiled kernels");
	snprintf(path, sizeof(path), "%s/%s/%s", root, info.gfx_target_version == 90010 ? "gfx90a" : "gfx906", name);
	file = fopen(path, "rb");
	if (!file)
		FAIL("%s: %s", path, tap_errno(errno));
	CHECK_EQ(fseek(file, 0, SEEK_END), 0);
	end = ftell(file);
	CHECK_OP(end, >, 0);
	rewind(file);
	image = malloc(end);
	CHECK_EQ(fread(image, 1, end, file), end);
	fclose(file);
	*bytes = end;
	return image;
}

/* An address space, and the program of that name in it. */
static inline void need_code(const char *name)
{
	uint64_t bytes;
	void *image;

	need_vm();
	image = code(name, &bytes);
	OK(rkfd_program_load(vm, image, bytes, &program));
	free(image);
}

static inline struct rkfd_kernel *kernel(const char *name)
{
	struct rkfd_kernel *k;

	OK(rkfd_kernel_new(program, name, &k));
	CHECK(k);
	return k;
}

#endif
