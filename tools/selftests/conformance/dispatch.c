// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * How a call is dispatched, whatever it does: numbers, sizes, directions, who may call; and GET_VERSION.
 */
#include "kfd.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(version_values, "GET_VERSION: major 1, a minor that the clients know")
{
	struct kfd_ioctl_get_version_args v = { 0xffffffff, 0xffffffff };

	CHECK_OK(kfd_call(need_kfd(), AMDKFD_IOC_GET_VERSION, &v));
	CHECK_EQ(v.major_version, 1);
	CHECK_OP(v.minor_version, >=, 13);
	CHECK_OP(v.minor_version, <, 0x10000);
}

CASE(version_bad_pointer, "GET_VERSION: unwritable result is EFAULT")
{
	CHECK_ERR(kfd_call(need_kfd(), AMDKFD_IOC_GET_VERSION, (void *)1), EFAULT);
}

CASE(number_zero, "number 0 is ENOTTY")
{
	uint64_t buffer[4] = { 0 };

	CHECK_ERR(kfd_call(need_kfd(), _IOWR('K', 0, uint64_t), buffer), ENOTTY);
}

CASE(number_beyond, "numbers beyond the last are ENOTTY")
{
	static const unsigned int numbers[] = { AMDKFD_COMMAND_END, 0x40, 0x7f, 0xff };
	uint64_t buffer[8] = { 0 };
	int fd = need_kfd();

	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct kfd_ioctl_get_version_args v = { 0, 0 };

		/* An older interface may lack the last numbers, and that is not what is asked here. */
		CHECK_OK(kfd_call(fd, AMDKFD_IOC_GET_VERSION, &v));
		CHECK_ERR(kfd_call(fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', numbers[i], 16), buffer), ENOTTY);
	}
}

CASE(number_out_of_tree, "numbers 0x80 to 0x85 of the out-of-tree driver are ENOTTY")
{
	uint64_t buffer[8] = { 0 };
	int fd = need_kfd();

	for (unsigned int nr = 0x80; nr <= 0x85; nr++)
		CHECK_ERR(kfd_call(fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', nr, 32), buffer), ENOTTY);
}

CASE(size_shorter, "a shorter structure gets only its own bytes back")
{
	uint32_t words[2] = { 0xa5a5a5a5, 0xa5a5a5a5 };

	CHECK_OK(kfd_call(need_kfd(), _IOC(_IOC_READ, 'K', 1, 4), words));
	CHECK_EQ(words[0], 1);
	CHECK_EQ(words[1], 0xa5a5a5a5);
}

CASE(size_longer, "a longer structure is zero-filled behind the kernel's own")
{
	uint32_t words[5] = { 0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5 };

	CHECK_OK(kfd_call(need_kfd(), _IOC(_IOC_READ, 'K', 1, 16), words));
	CHECK_EQ(words[0], 1);
	CHECK_EQ(words[2], 0);
	CHECK_EQ(words[3], 0);
	CHECK_EQ(words[4], 0xa5a5a5a5);
}

CASE(size_zero, "a size of 0 copies nothing out")
{
	uint32_t words[2] = { 0xa5a5a5a5, 0xa5a5a5a5 };

	CHECK_OK(kfd_call(need_kfd(), _IOC(_IOC_READ, 'K', 1, 0), words));
	CHECK_EQ(words[0], 0xa5a5a5a5);
	CHECK_EQ(words[1], 0xa5a5a5a5);
}

CASE(magic_ignored, "the type letter of the command is not looked at")
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };

	CHECK_OK(kfd_call(need_kfd(), _IOC(_IOC_READ, 'Z', 1, 8), &v));
	CHECK_EQ(v.major_version, 1);
}

CASE(direction_ignored, "the direction of the command is the kernel's own")
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };

	CHECK_OK(kfd_call(need_kfd(), _IOC(_IOC_WRITE, 'K', 1, 8), &v));
	CHECK_EQ(v.major_version, 1);
}

CASE(old_debugger, "the four calls of the old debugger are EPERM")
{
	uint64_t buffer[2] = { 0 };
	int fd = need_kfd();

	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_DBG_REGISTER_DEPRECATED, buffer), EPERM);
	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_DBG_UNREGISTER_DEPRECATED, buffer), EPERM);
	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_DBG_ADDRESS_WATCH_DEPRECATED, buffer), EPERM);
	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_DBG_WAVE_CONTROL_DEPRECATED, buffer), EPERM);
}

CASE(unreadable_argument, "an unreadable argument is EFAULT before anything else")
{
	int fd = need_kfd();

	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_DESTROY_EVENT, (void *)1), EFAULT);
	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_CREATE_QUEUE, (void *)1), EFAULT);
}

static void child_uses_fd(void *fd)
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };

	CHECK_ERR(kfd_call(*(int *)fd, AMDKFD_IOC_GET_VERSION, &v), EBADF);
}

CASE(fork_child, "the parent's file answers EBADF in a forked child")
{
	int fd = need_kfd();

	CHECK_EQ(in_child(child_uses_fd, &fd), 0);
}

static int sharer_uses_fd(void *fd)
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };

	_exit(kfd_call(*(int *)fd, AMDKFD_IOC_GET_VERSION, &v) == EBADF ? 0 : 1);
}

CASE(sharer, "the parent's file answers EBADF in a child that shares its memory, which is another process all the same")
{
	static char stack[16384] __attribute__((aligned(16)));
	int fd = need_kfd(), status;
	pid_t pid;

	/* The parent waits meanwhile: the two have one errno. */
	pid = clone(sharer_uses_fd, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);
	CHECK_OP(pid, >, 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

static void child_maps_fd(void *fd)
{
	void *p = mmap(NULL, DOORBELL_SLICE, PROT_READ, MAP_SHARED, *(int *)fd, (off_t)(3ull << 62));

	CHECK(p == MAP_FAILED);
	CHECK_EQ(errno, EBADF);
}

CASE(fork_child_mmap, "mmap of the parent's file is EBADF in a forked child")
{
	int fd = need_kfd();

	CHECK_EQ(in_child(child_maps_fd, &fd), 0);
}

static void child_opens(void *unused)
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };

	CHECK_OK(kfd_call(need_kfd(), AMDKFD_IOC_GET_VERSION, &v));
	CHECK_EQ(v.major_version, 1);
}

CASE(fork_child_opens, "a forked child opens the device for itself")
{
	need_kfd();
	CHECK_EQ(in_child(child_opens, NULL), 0);
}

CASE(passed_fd, "a file passed to another process answers EBADF there and still works here")
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };
	int pair[2], status, fd;
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	/* The child exists before the file does, so it cannot have inherited it. */
	pid = fork();
	if (pid == 0) {
		fd = receive_fd(pair[1]);
		_exit(kfd_call(fd, AMDKFD_IOC_GET_VERSION, &v) == EBADF ? 0 : 1);
	}
	fd = need_kfd();
	send_fd(pair[0], fd);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_OK(kfd_call(fd, AMDKFD_IOC_GET_VERSION, &v));
}

CASE(passed_fd_outlives, "a passed file that outlives its process does no harm")
{
	struct kfd_ioctl_get_version_args v = { 0, 0 };
	int pair[2], status, fd;
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid = fork();
	if (pid == 0) {
		struct gpu gpu;

		need_vm(&gpu, 0);
		send_fd(pair[1], gpu.fd);
		_exit(0);
	}
	close(pair[1]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TAP_STATUS_SKIP)
		SKIP("no GPU");
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	fd = receive_fd(pair[0]);
	CHECK_ERR(kfd_call(fd, AMDKFD_IOC_GET_VERSION, &v), EBADF);
	close(fd);
	CHECK_OK(kfd_call(need_kfd(), AMDKFD_IOC_GET_VERSION, &v));
}

CASE(two_opens_share, "two opens of one process share its objects")
{
	struct gpu gpu;
	struct event ev;
	int second;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	second = need_kfd();
	gpu.fd = second;
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_ERR(event_destroy(&gpu, ev.id), EINVAL);
}

CASE(close_keeps_process, "closing one of two files keeps the process's objects")
{
	struct gpu gpu;
	struct event ev;
	int first;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	first = gpu.fd;
	gpu.fd = need_kfd();
	close(first);
	CHECK_OK(event_set(&gpu, ev.id));
}

CASE(no_read_write, "the device has no read and no write")
{
	int fd = need_kfd();
	char byte = 0;

	CHECK_EQ(read(fd, &byte, 1), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(write(fd, &byte, 1), -1);
	CHECK_EQ(errno, EINVAL);
}

CASE(exec_child, "a process that executes another program starts over")
{
	int pid, status;

	need_kfd();
	pid = fork();
	if (pid == 0) {
		struct gpu gpu;

		need_vm(&gpu, 0);
		/* Its results are not this program's; the exit status tells. */
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		/* Files are close-on-exec; the address space goes with the old program. */
		execl("/proc/self/exe", "dispatch", "GET_VERSION: major 1", (char *)NULL);
		_exit(1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}
