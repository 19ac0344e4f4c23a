// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "limited.h"
#include "files.h"
#include "kfd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

void need_limited(struct limited *l, int render)
{
	char link[64], target[512];
	struct stat s;

	CHECK_EQ(fstat(render, &s), 0);
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/device", major(s.st_rdev), minor(s.st_rdev));
	CHECK(realpath(link, target));
	snprintf(l->region, sizeof(l->region), "drm/%.63s/vram", strrchr(target, '/') + 1);
	need_group(&l->group);
	write_text(ROOT, "cgroup.subtree_control", "+dmem");
}

void set_limit(const struct limited *l, uint64_t bytes)
{
	char text[192];

	if (bytes == UINT64_MAX)
		snprintf(text, sizeof(text), "%s max", l->region);
	else
		snprintf(text, sizeof(text), "%s %llu", l->region, (unsigned long long)bytes);
	write_text(l->group.path, "dmem.max", text);
}

uint64_t vram_charged(const struct limited *l)
{
	return group_number(&l->group, "dmem.current", l->region);
}

void await_vram_charged(const struct limited *l, uint64_t bytes)
{
	for (uint64_t end = now_ms() + WAIT_MS; vram_charged(l) != bytes && now_ms() < end;)
		usleep(10000);
	CHECK_EQ(vram_charged(l), bytes);
}

void leave_limited(struct limited *l)
{
	write_text(ROOT, "cgroup.procs", "0");
	drop_group(&l->group);
}
