// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "debugfs.h"
#include "kfd.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

unsigned long ih_counter(const char *name)
{
	unsigned long count = 0, number;
	bool found = false;
	char line[200], key[64];
	glob_t paths;
	FILE *file;

	if (glob("/sys/kernel/debug/rkfd/*/ih", 0, NULL, &paths))
		LACKING("no counters of interrupts in debugfs");
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
