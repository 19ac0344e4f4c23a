// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "hints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void need_hints(const struct nfile *file)
{
	if (file->device.version < 6)
		LACKING("the driver takes no hints");
}

void need_moves_by_access(const struct nfile *file)
{
	need_hints(file);
	if (!(file->device.features & DRM_RKFD_FEATURE_MOVES_BY_ACCESS))
		LACKING("accesses move no memory");
}

uint32_t hinted_begin(struct engine *e, void *cpu, uint64_t va, uint64_t length)
{
	uint32_t id;

	engine_open(e);
	need_moves_by_access(&e->file);
	id = need_mirror(&e->file, cpu, va, length, FAULT);
	engine_start(e, QUEUE_AT);
	return id;
}

int mirror_hint(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place,
		uint32_t granularity)
{
	struct drm_rkfd_mirror_migrate args = {
		.id = id,
		.flags = KEEP,
		.gpu_address = va,
		.length = length,
		.place = place,
		.granularity = granularity,
	};
	int err = native(file->fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, &args);

	CHECK_EQ(args.moved, 0);
	CHECK_EQ(args.stayed, 0);
	return err;
}

/* The GPU's own directory, which has the name of its PCI device. */
static FILE *need_figures(const struct nfile *file)
{
	char link[64], target[512], path[600];
	struct stat s;
	FILE *figures;

	CHECK_EQ(fstat(file->fd, &s), 0);
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/device", major(s.st_rdev), minor(s.st_rdev));
	CHECK(realpath(link, target));
	snprintf(path, sizeof(path), "/sys/kernel/debug/rkfd/%s/mirrors", strrchr(target, '/') + 1);
	figures = fopen(path, "re");
	if (!figures)
		LACKING("debugfs has no %s", path);
	return figures;
}

uint64_t mirror_count(const struct nfile *file, const char *name)
{
	FILE *figures = need_figures(file);
	char line[512], key[64];
	unsigned long long number;

	while (fgets(line, sizeof(line), figures))
		if (sscanf(line, "count %63s %llu", key, &number) == 2 && !strcmp(key, name)) {
			fclose(figures);
			return number;
		}
	FAIL("the driver does not count %s", name);
}

/* The number behind a word of a line. */
static uint64_t number_behind(const char *line, const char *word)
{
	const char *at = strstr(line, word);

	if (!at)
		FAIL("no \"%s\" in: %s", word, line);
	return strtoull(at + strlen(word), NULL, 0);
}

uint64_t mirrors_have(const struct nfile *file, const char *word)
{
	FILE *figures = need_figures(file);
	char line[512], behind[64];
	unsigned int id, found = 0;
	uint64_t sum = 0;
	int pid;

	snprintf(behind, sizeof(behind), " %s ", word);
	while (fgets(line, sizeof(line), figures))
		if (sscanf(line, "mirror %u pid %d ", &id, &pid) == 2 && pid == getpid()) {
			sum += number_behind(line, behind);
			found++;
		}
	fclose(figures);
	CHECK_OP(found, >, 0);
	return sum;
}

unsigned int listed_hints(const struct nfile *file, uint32_t id, struct hint *hints, unsigned int most)
{
	FILE *figures = need_figures(file);
	unsigned int found = 0, listed = 0, all = 0, more = 0;
	unsigned long long end = 0;
	bool ours = false, seen = false, shown = false;
	char line[512], head[64];

	snprintf(head, sizeof(head), "mirror %u pid %d ", id, getpid());
	while (fgets(line, sizeof(line), figures)) {
		struct hint hint = { 0 };
		unsigned long long first, last;
		int words;

		if (!strncmp(line, "mirror ", 7)) {
			ours = !strncmp(line, head, strlen(head));
			if (!ours)
				continue;
			CHECK(!seen);
			seen = true;
			all = number_behind(line, " hints ");
			continue;
		}
		if (!ours)
			continue;
		/* Hints come before what is shown. */
		shown = shown || !strncmp(line, "shown ", 6);
		if (sscanf(line, "more hints %u", &more) == 1)
			continue;
		words = sscanf(line, "hint 0x%llx-0x%llx %7s %7s", &first, &last, hint.place, hint.reach);
		if (words < 3)
			continue;
		CHECK(!shown);
		CHECK_EQ(words == 4, !strcmp(hint.place, "vram"));
		CHECK_OP(first, <, last);
		hint.first = first;
		hint.last = last;
		/* In ascending order. */
		if (found)
			CHECK_OP(end, <, first);
		end = last;
		found++;
		if (listed < most)
			hints[listed++] = hint;
	}
	fclose(figures);
	if (!seen)
		FAIL("mirror %u is not listed", id);
	CHECK_EQ(found + more, all);
	CHECK_EQ(mirror_query(file, id).hints, all);
	return all;
}

void hints_are(const struct nfile *file, uint32_t id, uint64_t va, const char *wanted)
{
	struct hint hints[16];
	unsigned int count = listed_hints(file, id, hints, 16);
	char text[1024] = "";
	size_t at = 0;

	for (unsigned int i = 0; i < count && i < 16; i++) {
		CHECK_EQ((hints[i].last + 1 - hints[i].first) % PAGE, 0);
		at += snprintf(text + at, sizeof(text) - at, "%s%lld+%llu:%s%s%s", i ? " " : "",
			       (long long)(hints[i].first - va) / (long long)PAGE,
			       (unsigned long long)(hints[i].last + 1 - hints[i].first) / PAGE, hints[i].place,
			       hints[i].reach[0] ? ":" : "", hints[i].reach);
	}
	if (strcmp(text, wanted))
		FAIL("the hints are \"%s\", not \"%s\"", text, wanted);
}
