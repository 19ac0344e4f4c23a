// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "kfd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int in_child(void (*run)(void *), void *context)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		run(context);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			FAIL("waitpid: %s", strerror(errno));
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void child_gave_up(pid_t pid)
{
	int status = 0;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TAP_STATUS_SKIP)
		SKIP("the child lacks something");
	FAIL("the child ended early (status %#x)", status);
}

void say_ready(int ready)
{
	if (write(ready, "x", 1) != 1)
		_exit(1);
}

pid_t start_child(void (*act)(int ready))
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK_EQ(pipe2(ready, O_CLOEXEC), 0);
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		close(ready[0]);
		act(ready[1]);
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		child_gave_up(pid);
	close(ready[0]);
	return pid;
}

void kill_child(pid_t pid)
{
	int status;

	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), SIGKILL);
}

void send_fd(int to, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec io = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(int));
	CHECK_EQ(sendmsg(to, &msg, 0), 1);
}

int receive_fd(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec io = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head;
	int fd;

	CHECK_EQ(recvmsg(from, &msg, 0), 1);
	head = CMSG_FIRSTHDR(&msg);
	CHECK(head != NULL);
	memcpy(&fd, CMSG_DATA(head), sizeof(int));
	return fd;
}
