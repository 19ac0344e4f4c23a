// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "debugfs.h"
#include "kfd.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of a file of the first GPU's whose path the pattern matches. */
static unsigned long counter(const char *pattern, const char *name)
{
	unsigned long count = 0, number;
	bool found = false;
	char line[200], key[64];
	glob_t paths;
	FILE *file;

	if (glob(pattern, 0, NULL, &paths))
		LACKING("debugfs has no %s", pattern);
	file = fopen(paths.gl_pathv[0], "re");
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %lu", key, &number) == 2 && !strcmp(key, name)) {
			count = number;
			found = true;
		}
	}
	fclose(file);
	globfree(&paths);
	if (!found)
		FAIL("the driver does not count %s", name);
	return count;
}

unsigned long ih_counter(const char *name)
{
	return counter("/sys/kernel/debug/rkfd/*/ih", name);
}

unsigned long sched_counter(const char *name)
{
	return counter("/sys/kernel/debug/rkfd/*/sched", name);
}

unsigned long userptr_counter(const char *name)
{
	return counter("/sys/kernel/debug/rkfd/*/userptr", name);
}

unsigned long only_mqd(void)
{
	unsigned long address = 0;
	char line[400], *at;
	glob_t paths;
	FILE *file;

	if (glob("/sys/kernel/debug/rkfd/*/mqds", 0, NULL, &paths))
		LACKING("debugfs does not show descriptors");
	file = fopen(paths.gl_pathv[0], "re");
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		at = strncmp(line, "  queue ", 8) ? NULL : strstr(line, " mqd 0x");
		if (!at)
			continue;
		CHECK_EQ(address, 0);
		address = strtoul(at + 5, NULL, 16);
	}
	fclose(file);
	globfree(&paths);
	CHECK_NE(address, 0);
	return address;
}

unsigned long ring_written(const char *name)
{
	return counter("/sys/kernel/debug/rkfd/*/rings", name);
}
