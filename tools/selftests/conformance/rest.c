// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The remaining calls: where a driver does not implement one, it answers as upstream does on a part without it,
 * and bad arguments are refused either way. What is implemented must work; a false success is a failure.
 */
#include "kfd.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* dma-buf; what works is in dmabuf.c */

static int export_bo(const struct gpu *gpu, uint64_t handle, int *fd)
{
	struct kfd_ioctl_export_dmabuf_args args = { .handle = handle, .flags = O_CLOEXEC, .dmabuf_fd = ~0u };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_EXPORT_DMABUF, &args);

	*fd = args.dmabuf_fd;
	return err;
}

CASE(export_bad_handle, "EXPORT_DMABUF: an unknown handle, and one of an unknown GPU, are EINVAL")
{
	struct gpu gpu;
	int fd;

	need_vm(&gpu, 0);
	CHECK_ERR(export_bo(&gpu, (uint64_t)gpu.id << 32 | 0x7fffffff, &fd), EINVAL);
	CHECK_ERR(export_bo(&gpu, (uint64_t)(gpu.id ^ 0x5555) << 32 | 1, &fd), EINVAL);
}

CASE(import_bad, "IMPORT_DMABUF: an unknown GPU is EINVAL, then a number that is no file EBADF, then what is no dma-buf EINVAL")
{
	struct kfd_ioctl_import_dmabuf_args args = { .dmabuf_fd = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.gpu_id = gpu.id;
	args.va_addr = need_address(PAGE, PAGE);
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), EBADF);
	args.dmabuf_fd = gpu.fd;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), EINVAL);
	args.gpu_id ^= 0x5555;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), EINVAL);
	args.dmabuf_fd = 1000;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), EINVAL);
}

CASE(import_unbound, "IMPORT_DMABUF: before ACQUIRE_VM is ENODEV")
{
	struct kfd_ioctl_import_dmabuf_args args = { .dmabuf_fd = 1000 };
	struct gpu gpu;

	need_gpu(&gpu, 0);
	args.gpu_id = gpu.id;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), ENODEV);
}

CASE(dmabuf_info_bad, "GET_DMABUF_INFO: a number that is no file is EBADF, a file that is no dma-buf EINVAL")
{
	struct kfd_ioctl_get_dmabuf_info_args args = { 0 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.dmabuf_fd = gpu.fd;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_GET_DMABUF_INFO, &args), EINVAL);
	args.dmabuf_fd = 1000;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_GET_DMABUF_INFO, &args), EBADF);
}

/* SVM */

struct svm_args {
	uint64_t start, size;
	uint32_t op, n;
	struct kfd_ioctl_svm_attribute attr[4];
};

static int svm(const struct gpu *gpu, struct svm_args *args)
{
	size_t size = 24 + 8 * args->n;

	return kfd_call(gpu->fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x20, size), args);
}

CASE(svm_unaligned, "SVM: start or size that is 0 or not of whole pages is refused")
{
	static const uint64_t bad[][2] = { { 0x600000000000, 0 }, { 0, PAGE }, { 0x600000000001, PAGE },
					   { 0x600000000000, 5 } };
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int i = 0; i < 4; i++) {
		struct svm_args args = { .start = bad[i][0], .size = bad[i][1], .op = 0, .n = 1,
					 .attr = { { KFD_IOCTL_SVM_ATTR_SET_FLAGS, 0 } } };
		int err = svm(&gpu, &args);

		/* EINVAL where there is SVM, EPERM in a kernel that has none. */
		CHECK(err == EINVAL || err == EPERM);
	}
}

CASE(svm_short, "SVM: more attributes than the command's size holds are refused")
{
	struct svm_args args = { .start = 0x600000000000, .size = PAGE, .n = 4 };
	struct gpu gpu;
	int err;

	need_vm(&gpu, 0);
	err = kfd_call(gpu.fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x20, 24 + 8), &args);
	CHECK(err == EINVAL || err == EPERM);
}

CASE(svm_unmapped, "SVM: a range without CPU memory is refused")
{
	struct svm_args args = { .size = 16 * PAGE, .op = KFD_IOCTL_SVM_OP_SET_ATTR, .n = 1 };
	struct gpu gpu;
	int err;

	need_vm(&gpu, 0);
	args.start = need_address(16 * PAGE, PAGE);
	munmap((void *)args.start, 16 * PAGE);
	args.attr[0] = (struct kfd_ioctl_svm_attribute){ KFD_IOCTL_SVM_ATTR_ACCESS, gpu.id };
	err = svm(&gpu, &args);
	CHECK(err == EFAULT || err == EPERM);
}

CASE(svm_capability, "SVM: the capability bit says whether the call works")
{
	struct svm_args args = { .size = 16 * PAGE, .op = KFD_IOCTL_SVM_OP_SET_ATTR, .n = 1 };
	struct gpu gpu;
	uint64_t capability;
	void *p;
	int err;

	need_vm(&gpu, 0);
	if (!topology_value(gpu.id, "properties", "capability", &capability))
		SKIP("no topology");
	p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	args.start = (uintptr_t)p;
	args.attr[0] = (struct kfd_ioctl_svm_attribute){ KFD_IOCTL_SVM_ATTR_ACCESS, gpu.id };
	err = svm(&gpu, &args);
	if (capability >> 27 & 1)
		CHECK_OK(err);
	else
		CHECK_ERR(err, EPERM);
}

/* CRIU */

CASE(criu_bad_op, "CRIU_OP: an unknown operation is EINVAL")
{
	struct kfd_ioctl_criu_args args = { .op = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_CRIU_OP, &args), EINVAL);
}

CASE(criu_known_ops, "CRIU_OP: every operation works or is EOPNOTSUPP")
{
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers do what is asked");
	need_vm(&gpu, 0);
	for (uint32_t op = KFD_CRIU_OP_PROCESS_INFO; op <= KFD_CRIU_OP_RESUME; op++) {
		struct kfd_ioctl_criu_args args = { .op = op };

		CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_CRIU_OP, &args), EOPNOTSUPP);
	}
}

/* Gives up root and goes on with a file of one's own; /dev/kfd is open to everybody until the case ends. */
static int open_without_root(void)
{
	int own;

	if (chmod("/dev/kfd", 0666) || setgid(65534) || setuid(65534))
		_exit(TAP_STATUS_SKIP);
	own = open("/dev/kfd", O_RDWR);
	if (own < 0)
		_exit(TAP_STATUS_SKIP);
	return own;
}

static void without_root(void (*act)(void *))
{
	struct stat before;
	int status;

	close(need_kfd());
	if (geteuid())
		SKIP("needs root to give it up");
	CHECK_EQ(stat("/dev/kfd", &before), 0);
	status = in_child(act, NULL);
	CHECK_EQ(chmod("/dev/kfd", before.st_mode & 07777), 0);
	if (status == TAP_STATUS_SKIP)
		SKIP("cannot give up root here");
	CHECK_EQ(status, 0);
}

static void try_criu(void *unused)
{
	struct kfd_ioctl_criu_args args = { .op = KFD_CRIU_OP_PROCESS_INFO };

	CHECK_ERR(kfd_call(open_without_root(), AMDKFD_IOC_CRIU_OP, &args), EACCES);
}

CASE(criu_unprivileged, "CRIU_OP: without the capability is EACCES")
{
	without_root(try_criu);
}

/* Debugger and profiler */

/* What is answered where the driver schedules queues itself: nothing is looked at then. */
static int dbg_answer(int err)
{
	return scheduled_by_driver() ? EINVAL : err;
}

CASE(dbg_bad_pid, "DBG_TRAP: a process that does not exist is ESRCH; EINVAL before that without firmware scheduling")
{
	struct kfd_ioctl_dbg_trap_args args = { .pid = 0x3fffffff, .op = KFD_IOC_DBG_TRAP_ENABLE };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), dbg_answer(ESRCH));
	args.op = KFD_IOC_DBG_TRAP_SET_FLAGS;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), dbg_answer(ESRCH));
}

static void open_and_wait(int ready)
{
	need_kfd();
	say_ready(ready);
	for (;;)
		pause();
}

CASE(dbg_foreign, "DBG_TRAP: a process that one does not trace is EPERM, one without the device ESRCH")
{
	struct kfd_ioctl_dbg_trap_args args = { .op = KFD_IOC_DBG_TRAP_ENABLE };
	struct gpu gpu;
	pid_t pid;

	need_vm(&gpu, 0);
	pid = start_child(open_and_wait);
	args.pid = pid;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), dbg_answer(EPERM));
	args.op = KFD_IOC_DBG_TRAP_SET_FLAGS;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), dbg_answer(EPERM));
	kill_child(pid);
	args.pid = getppid();
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), dbg_answer(ESRCH));
}

CASE(dbg_before_enable, "DBG_TRAP: an operation before enabling is EINVAL")
{
	struct kfd_ioctl_dbg_trap_args args = { .op = KFD_IOC_DBG_TRAP_SET_FLAGS };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.pid = getpid();
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), EINVAL);
}

static void dbg_self(void *unused)
{
	struct kfd_ioctl_dbg_trap_args args = { .op = KFD_IOC_DBG_TRAP_ENABLE };
	struct gpu gpu;
	int err;

	(void)unused;
	need_vm(&gpu, 0);
	args.pid = getpid();
	err = kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args);
	if (!is_rkfd())
		CHECK_NE(err, ESRCH);
	else
		CHECK_ERR(err, dbg_answer(ENODEV));
}

static void dbg_self_in_namespace(void *unused)
{
	int status;

	if (unshare(CLONE_NEWPID))
		SKIP("no process namespace of one's own: %s", strerror(errno));
	status = in_child(dbg_self, unused);
	_exit(status < 0 ? 1 : status);
}

CASE(dbg_namespace, "DBG_TRAP: the process is found by its number in the caller's namespace")
{
	int status;

	CHECK_EQ(in_child(dbg_self, NULL), 0);
	status = in_child(dbg_self_in_namespace, NULL);
	if (status == TAP_STATUS_SKIP)
		SKIP("no process namespace here");
	CHECK_EQ(status, 0);
}

#ifdef AMDKFD_IOC_PROFILER
CASE(profiler_version, "PROFILER: its version is 1")
{
	struct kfd_ioctl_profiler_args args = { .op = KFD_IOC_PROFILER_VERSION };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_PROFILER, &args));
	CHECK_EQ(args.version, 1);
}

static void try_counters(void *unused)
{
	struct kfd_ioctl_profiler_args args = { .op = KFD_IOC_PROFILER_PMC };

	CHECK_ERR(kfd_call(open_without_root(), AMDKFD_IOC_PROFILER, &args), EPERM);
}

CASE(profiler_unprivileged, "PROFILER: counters without the capability are EPERM")
{
	without_root(try_counters);
}

CASE(profiler_absent, "PROFILER: what is not there is EOPNOTSUPP")
{
	static const uint32_t ops[] = { KFD_IOC_PROFILER_PMC, KFD_IOC_PROFILER_PTL_CONTROL };
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers have it");
	need_vm(&gpu, 0);
	for (int i = 0; i < 2; i++) {
		struct kfd_ioctl_profiler_args args = { .op = ops[i] };

		CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_PROFILER, &args), EOPNOTSUPP);
	}
}

CASE(profiler_bad_op, "PROFILER: an unknown operation is EINVAL")
{
	struct kfd_ioctl_profiler_args args = { .op = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_PROFILER, &args), EINVAL);
}
#endif
