// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Compares what rkfd says of its interface (uapi/rkfd_kfd_abi.h) with the kernel's own header:
 * the size of every structure, the place and size of every field, every command word.
 */
#include <stddef.h>
#include <stdio.h>

#include <linux/kfd_ioctl.h>

#include "rkfd_kfd_abi.h"

static int cases;
static int failures;

static void same(const char *what, unsigned long long ours, unsigned long long theirs)
{
	cases++;
	if (ours == theirs) {
		printf("ok %d - %s\n", cases, what);
		return;
	}
	failures++;
	printf("not ok %d - %s\n# rkfd: %#llx, linux/kfd_ioctl.h: %#llx\n", cases, what, ours, theirs);
}

/* A field of size 0 is a union of which only the place is fixed. */
static void field(const char *what, unsigned long offset, unsigned long size,
		  unsigned long their_offset, unsigned long their_size)
{
	if (size == 0)
		size = their_size;
	same(what, (unsigned long long)offset << 32 | size, (unsigned long long)their_offset << 32 | their_size);
}

int main(void)
{
#define STRUCT(name, size) same("size of " #name, size, sizeof(struct name));
#define FIELD(name, member, offset, size)                                                        \
	field(#name "." #member, offset, size, offsetof(struct name, member),                     \
	      sizeof(((struct name *)0)->member));
#define COMMAND(name, word) same(#name, word, name);
	RKFD_KFD_STRUCTS
	RKFD_KFD_COMMANDS
	same("major version", RKFD_KFD_MAJOR, KFD_IOCTL_MAJOR_VERSION);
	same("minor version", RKFD_KFD_MINOR, KFD_IOCTL_MINOR_VERSION);
	printf("1..%d\n", cases);
	return failures != 0;
}
