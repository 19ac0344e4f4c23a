// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "backoff.h"
#include "kfd.h"

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
