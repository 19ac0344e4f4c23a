// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: whether the cases before have called every function by two threads at once. The last file of
 * its program, since cases run in the order of the files.
 */
#include "library.h"

__thread unsigned int called_by;
unsigned int called_now[CALLED_FUNCTIONS];

static const char *const names[] = { CALLED_NAMES };
/* Shared by the processes of all cases: 1 where two threads of one have called the function. */
static unsigned char *by_two;

__attribute__((constructor)) static void share(void)
{
	by_two = mmap(NULL, CALLED_FUNCTIONS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (by_two == MAP_FAILED)
		abort();
}

void called_begin(void)
{
	memset(called_now, 0, sizeof(called_now));
}

void called_end(void)
{
	for (unsigned int i = 0; i < CALLED_FUNCTIONS; i++)
		if (called_now[i] == 3)
			by_two[i] = 1;
}

CASE(called_by_two, "each function of the header was called by two threads at once")
{
	unsigned int missing = 0;

	for (unsigned int i = 0; i < CALLED_FUNCTIONS; i++)
		if (!by_two[i]) {
			tap_note("not called by two threads at once: %s", names[i]);
			missing++;
		}
	CHECK_OP(CALLED_FUNCTIONS, >, 90);
	if (missing)
		FAIL("%u of %u functions, unless cases were left out", missing, CALLED_FUNCTIONS);
}
