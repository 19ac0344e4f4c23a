// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "group.h"
#include "kfd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

void need_group(struct group *group)
{
	static unsigned int made;
	FILE *f = fopen(ROOT "/cgroup.subtree_control", "we");

	if (!f || fputs("+memory", f) < 0 || fclose(f))
		LACKING("no memory controller at " ROOT ": %s", strerror(errno));
	snprintf(group->path, sizeof(group->path), ROOT "/rkfd-%d-%u", getpid(), made++);
	if (mkdir(group->path, 0755))
		FAIL("%s: %s", group->path, strerror(errno));
}

void drop_group(struct group *group)
{
	CHECK_EQ(rmdir(group->path), 0);
}

void group_join(const struct group *group)
{
	group_set(group, "cgroup.procs", getpid());
}

void group_set(const struct group *group, const char *file, uint64_t number)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	f = fopen(path, "we");
	if (!f || fprintf(f, "%llu", (unsigned long long)number) < 0 || fclose(f))
		FAIL("%s: cannot write %llu: %s", path, (unsigned long long)number, strerror(errno));
}

uint64_t group_number(const struct group *group, const char *file, const char *key)
{
	size_t skip = key ? strlen(key) : 0;
	char path[256], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	f = fopen(path, "re");
	if (!f)
		FAIL("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (key && (strncmp(line, key, skip) || line[skip] != ' '))
			continue;
		fclose(f);
		return strtoull(line + skip, NULL, 10);
	}
	FAIL("%s says nothing of %s", path, key ? key : "its number");
}

uint64_t group_charge(const struct group *group)
{
	return group_number(group, "memory.current", NULL);
}

void await_charge(const struct group *group, uint64_t most)
{
	uint64_t end = now_ms() + WAIT_MS, now;

	while ((now = group_charge(group)) > most) {
		if (now_ms() > end)
			FAIL("%llu bytes stay charged, %llu expected", (unsigned long long)now,
			     (unsigned long long)most);
		usleep(10000);
	}
}

/*
 * A limit below what is charged makes each processor give back what it has in reserve, one after the other. The charge is
 * settled when a few such limits have not lowered it any more.
 */
void settle_charge(const struct group *group)
{
	uint64_t least = UINT64_MAX, now;

	for (unsigned int still = 0; still < 5; still++) {
		now = group_charge(group);
		if (now < least) {
			least = now;
			still = 0;
		}
		group_set(group, "memory.max", least - PAGE);
		usleep(10000);
	}
}
