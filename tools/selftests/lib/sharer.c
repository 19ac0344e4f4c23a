// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "sharer.h"
#include "tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

void sharer_begin(struct sharer *s, void (*look)(void))
{
	int down[2], up[2];
	char byte;

	CHECK_EQ(pipe2(down, O_CLOEXEC), 0);
	CHECK_EQ(pipe2(up, O_CLOEXEC), 0);
	fflush(stdout);
	s->pid = fork();
	CHECK_NE(s->pid, -1);
	if (s->pid == 0) {
		close(down[1]);
		close(up[0]);
		while (read(down[0], &byte, 1) == 1) {
			look();
			CHECK_EQ(write(up[1], "", 1), 1);
		}
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	s->to = down[1];
	s->from = up[0];
}

void sharer_look(const struct sharer *s)
{
	char byte;

	CHECK_EQ(write(s->to, "", 1), 1);
	CHECK_EQ(read(s->from, &byte, 1), 1);
}

void sharer_end(struct sharer *s)
{
	int status;

	if (!s->pid)
		return;
	close(s->to);
	CHECK_EQ(waitpid(s->pid, &status, 0), s->pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}
