// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "backoff.h"
#include "kfd.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

void await64(volatile uint64_t *address, uint64_t value, const char *what)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct backoff wait = { 0 };

	while (__atomic_load_n(address, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited %u ms for %#llx, last seen %#llx", what, WAIT_MS,
			     (unsigned long long)value, (unsigned long long)*address);
		back_off(&wait);
	}
}

void await32(volatile uint32_t *address, uint32_t value, const char *what)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct backoff wait = { 0 };

	while (__atomic_load_n(address, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited %u ms for %#x, last seen %#x", what, WAIT_MS, value, *address);
		back_off(&wait);
	}
}

/* Whether a thread of this process sleeps in the kernel, as its state says. */
static bool sleeps(pid_t tid)
{
	char path[64], line[256];
	char *name_end = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "re");
	CHECK(f);
	if (fgets(line, sizeof(line), f))
		name_end = strrchr(line, ')');
	fclose(f);
	return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

void await_sleep(const volatile pid_t *tid)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct backoff wait = { 0 };
	pid_t known;

	while (!(known = __atomic_load_n(tid, __ATOMIC_ACQUIRE)) || !sleeps(known)) {
		if (now_ms() > end)
			FAIL("a thread did not sleep for %u ms", WAIT_MS);
		back_off(&wait);
	}
}

void join_in_time(pthread_t thread, const char *what)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct backoff wait = { 0 };

	while (pthread_tryjoin_np(thread, NULL)) {
		if (now_ms() > end)
			FAIL("%s has not ended after %u ms", what, WAIT_MS);
		back_off(&wait);
	}
}
