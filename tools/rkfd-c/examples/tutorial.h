/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the programs of Documentation/tutorial.md and tasks.c share: ends with a reason, the layout of a packet, and files of kernels. */
#ifndef TUTORIAL_H
#define TUTORIAL_H

#include <rkfd.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest wait for what is going to happen. */
#define LIMIT_MS 60000

/* A call of the library that has to succeed. */
#define OK(call)                                                                 \
	do {                                                                     \
		if (call) {                                                      \
			fprintf(stderr, "%s: %s\n", #call, rkfd_last_error());   \
			exit(1);                                                 \
		}                                                                \
	} while (0)

/* What has to be true. */
#define CHECK(condition)                                              \
	do {                                                          \
		if (!(condition)) {                                   \
			fprintf(stderr, "not so: %s\n", #condition);  \
			exit(1);                                      \
		}                                                     \
	} while (0)

/* A kernel dispatch packet, named as hsa_kernel_dispatch_packet_t of hsa.h. */
struct dispatch_packet {
	uint16_t header, setup;
	uint16_t workgroup_size_x, workgroup_size_y, workgroup_size_z, reserved0;
	uint32_t grid_size_x, grid_size_y, grid_size_z;
	uint32_t private_segment_size, group_segment_size;
	uint64_t kernel_object, kernarg_address, reserved2, completion_signal;
};
_Static_assert(sizeof(struct dispatch_packet) == 64, "an AQL packet has 64 bytes");

/* The name that compilers have for a GPU, such as gfx90a for version 90010. */
static inline const char *gfx(uint32_t version)
{
	static char text[16];

	snprintf(text, sizeof(text), "gfx%u%x%x", version / 10000, version / 100 % 100, version % 100);
	return text;
}

/* A file that hipcc --genco made, in the memory of a GPU. */
static inline struct rkfd_program *load(const struct rkfd_vm *vm, const char *path)
{
	FILE *file = path ? fopen(path, "rb") : NULL;
	struct rkfd_program *program;
	static char image[1 << 20];
	size_t bytes;

	CHECK(file);
	bytes = fread(image, 1, sizeof(image), file);
	fclose(file);
	OK(rkfd_program_load(vm, image, bytes, &program));
	return program;
}

#endif
