// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 60, STATUS_PASS = 0, STATUS_FAIL = 1, STATUS_SKIP = TAP_STATUS_SKIP };

static struct tap_case *first, **last = &first;
/* Where a case leaves the reason of a skip for its parent. */
static int reason_fd = -1;
static pid_t case_pid;

void tap_register(struct tap_case *c)
{
	*last = c;
	last = &c->next;
}

const char *tap_errno(int err)
{
	const char *name = err ? strerrorname_np(err) : "success";

	/* ENOTSUPP belongs to the kernel, which lets it out nevertheless. */
	return name ? name : err == 524 ? "ENOTSUPP" : "an unknown errno";
}

void tap_note(const char *format, ...)
{
	va_list args;
	char line[512];

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	printf("# %s\n", line);
	fflush(stdout);
}

static void leave(int status)
{
	fflush(stdout);
	/* A thread or a child of the case may get here: the case's own process has to end. */
	if (getpid() != case_pid)
		_exit(status);
	exit(status);
}

void tap_fail(const char *file, int line, const char *format, ...)
{
	va_list args;
	char text[512];

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("# %s:%d: %s\n", file, line, text);
	leave(STATUS_FAIL);
	__builtin_unreachable();
}

static void skip(const char *format, va_list args)
{
	if (reason_fd >= 0)
		vdprintf(reason_fd, format, args);
	leave(STATUS_SKIP);
}

void tap_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	skip(format, args);
	va_end(args);
	__builtin_unreachable();
}

void tap_lacking(const char *format, ...)
{
	const char *required = getenv("KFD_REQUIRE_GPU");
	va_list args;

	va_start(args, format);
	if (required && *required && strcmp(required, "0")) {
		printf("# required by KFD_REQUIRE_GPU: ");
		vprintf(format, args);
		printf("\n");
		leave(STATUS_FAIL);
	}
	skip(format, args);
	va_end(args);
	__builtin_unreachable();
}

static bool chosen(const struct tap_case *c, int argc, char **argv)
{
	if (argc < 2)
		return true;
	for (int i = 1; i < argc; i++)
		if (strstr(c->name, argv[i]))
			return true;
	return false;
}

/* A machine that is slow, or made to carry more than usual, says by how much its tests may be slower. */
static unsigned int patience(void)
{
	const char *text = getenv("TAP_PATIENCE");

	return text && atoi(text) > 0 ? atoi(text) : 1;
}

unsigned int tap_ms(unsigned int ms)
{
	return ms * patience();
}

static bool run(int number, const struct tap_case *c)
{
	unsigned int limit = (c->limit ? c->limit : LIMIT_SECONDS) * patience();
	char reason[256] = "";
	int status, pipefd[2];
	pid_t pid;
	ssize_t n;

	if (pipe(pipefd)) {
		printf("not ok %d - %s # pipe: %s\n", number, c->name, strerror(errno));
		return false;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(pipefd[0]);
		reason_fd = pipefd[1];
		case_pid = getpid();
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, SIG_DFL);
		alarm(limit);
		c->run();
		leave(STATUS_PASS);
	}
	close(pipefd[1]);
	if (pid < 0) {
		close(pipefd[0]);
		printf("not ok %d - %s # fork: %s\n", number, c->name, strerror(errno));
		return false;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* Children that a failed case has left: they must neither work on nor keep the pipe open. */
	kill(-pid, SIGKILL);
	fcntl(pipefd[0], F_SETFL, O_NONBLOCK);
	n = read(pipefd[0], reason, sizeof(reason) - 1);
	reason[n > 0 ? n : 0] = '\0';
	close(pipefd[0]);

	if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_PASS) {
		printf("ok %d - %s\n", number, c->name);
		return true;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIP) {
		printf("ok %d - %s # SKIP %s\n", number, c->name, reason);
		return true;
	}
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("# not finished after %u s\n", limit);
	else if (WIFSIGNALED(status))
		printf("# killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
	printf("not ok %d - %s\n", number, c->name);
	return false;
}

int tap_main(int argc, char **argv)
{
	int number = 0, total = 0, failed = 0;
	struct tap_case *c;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (c = first; c; c = c->next)
			printf("%s\n", c->name);
		return 0;
	}
	for (c = first; c; c = c->next)
		total += chosen(c, argc, argv);
	printf("TAP version 13\n1..%d\n", total);
	for (c = first; c; c = c->next)
		if (chosen(c, argc, argv) && !run(++number, c))
			failed++;
	fflush(stdout);
	return failed || !total;
}

/* A program with a main of its own (one that forks differently) overrides this one. */
__attribute__((weak)) int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
