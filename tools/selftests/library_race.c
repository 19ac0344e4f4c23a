// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A race of two threads in the user library, made on purpose: whoever runs the cases under ThreadSanitizer sees by it that
 * the library's own accesses are watched.
 */
#include "library.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* How the sanitizer ends a process. */
#define EXIT_CODE 66

static struct rkfd_queue *shared;
/* The header says of it that no other thread may use it meanwhile. */
static struct rkfd_queue_info result = { .size = sizeof(result) };

static void *describe(void *unused)
{
	for (unsigned int i = 0; i < 100000; i++)
		OK(rkfd_queue_describe(shared, &result));
	return NULL;
}

static void race(void)
{
	pthread_t other;

	need_vm();
	shared = queue(RKFD_QUEUE_PM4);
	CHECK_EQ(pthread_create(&other, NULL, describe, NULL), 0);
	describe(NULL);
	CHECK_EQ(pthread_join(other, NULL), 0);
}

CASE(seen, "the sanitizer is at work in the library: two threads that have one structure filled are seen")
{
	static char said[16384];
	size_t length = 0;
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	CHECK_EQ(pipe(ends), 0);
	pid = fork();
	CHECK_OP(pid + 1, >, 0);
	if (!pid) {
		dup2(ends[1], STDERR_FILENO);
		race();
		_exit(0);
	}
	close(ends[1]);
	/* Read to its end, so that the child never waits. */
	do {
		char rest[4096];
		bool room = length < sizeof(said) - 1;

		n = read(ends[0], room ? said + length : rest, room ? sizeof(said) - 1 - length : sizeof(rest));
		if (room && n > 0)
			length += n;
	} while (n > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (!strstr(said, "WARNING: ThreadSanitizer: data race"))
		FAIL("no data race is reported: \"%.200s\"", said);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), EXIT_CODE);
}
