// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * many N PROGRAM ARGUMENTS...: runs N copies of a TAP program at once. One case per copy: it passes if the copy
 * ended with success, printed as many results as it had planned, and none of them was a failure.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256 };

struct copy {
	pid_t pid;
	FILE *out;
};

static pid_t start(char **argv, FILE *out)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (dup2(fileno(out), STDOUT_FILENO) < 0 || dup2(fileno(out), STDERR_FILENO) < 0)
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	return pid;
}

/* Reads what a copy printed; true if its TAP is whole and free of failures. */
static bool read_results(FILE *out, int *passed, int *skipped)
{
	int planned = -1, failed = 0;
	char line[1024];

	*passed = *skipped = 0;
	rewind(out);
	while (fgets(line, sizeof(line), out)) {
		sscanf(line, "1..%d", &planned);
		if (!strncmp(line, "not ok ", 7))
			failed++;
		else if (!strncmp(line, "ok ", 3))
			++*(strstr(line, "# SKIP") ? skipped : passed);
	}
	return !failed && planned > 0 && planned == *passed + *skipped;
}

static void show(FILE *out)
{
	char line[1024];

	rewind(out);
	while (fgets(line, sizeof(line), out))
		printf("#   %s", line);
}

int main(int argc, char **argv)
{
	static struct copy copies[MOST];
	const char *given = getenv("TAP_PATIENCE");
	char patience[16];
	int n = argc > 2 ? atoi(argv[1]) : 0, failures = 0;

	if (n < 1 || n > MOST) {
		fprintf(stderr, "usage: %s N PROGRAM ARGUMENTS...   (N from 1 to %d)\n", argv[0], MOST);
		return 2;
	}
	/* Copies share the machine, so each is slower than alone, however slow that is. */
	snprintf(patience, sizeof(patience), "%d", (given && atoi(given) > 0 ? atoi(given) : 1) * (1 + n / 8));
	setenv("TAP_PATIENCE", patience, 1);
	/* … and they share what the GPU has little of. */
	setenv("TAP_COPIES", argv[1], 0);
	printf("TAP version 13\n1..%d\n", n);
	fflush(stdout);
	for (int i = 0; i < n; i++) {
		copies[i].out = tmpfile();
		copies[i].pid = copies[i].out ? start(argv + 2, copies[i].out) : -1;
	}
	for (int i = 0; i < n; i++) {
		int status = 0, passed = 0, skipped = 0;
		bool ok = copies[i].pid > 0;

		while (ok && waitpid(copies[i].pid, &status, 0) < 0)
			ok = errno == EINTR;
		ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
		if (copies[i].out)
			ok = read_results(copies[i].out, &passed, &skipped) && ok;
		if (!ok) {
			failures++;
			printf("# copy %d: status %#x\n", i, status);
			if (copies[i].out)
				show(copies[i].out);
		}
		printf("%s %d - copy %d of %d: %d passed, %d skipped\n", ok ? "ok" : "not ok", i + 1, i + 1, n, passed,
		       skipped);
		fflush(stdout);
	}
	return failures ? 1 : 0;
}
