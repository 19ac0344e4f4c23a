// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The remaining calls: where a driver does not implement one, it answers as upstream does on a part without it,
 * and bad arguments are refused either way. What is implemented must work; a false success is a failure.
 */
#include "kfd.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* SMI events */

static int smi(const struct gpu *gpu, uint32_t id, int *fd)
{
	struct kfd_ioctl_smi_events_args args = { .gpuid = id, .anon_fd = 0xffffffff };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_SMI_EVENTS, &args);

	*fd = args.anon_fd;
	return err;
}

static void need_smi(struct gpu *gpu, int *fd)
{
	int err;

	need_vm(gpu, 0);
	err = smi(gpu, gpu->id, fd);
	if (err) {
		/* No file may be handed out with an error. */
		CHECK_EQ(*fd, -1);
		SKIP("no SMI events here (%s)", tap_errno(err));
	}
}

CASE(smi_bad_gpu, "SMI_EVENTS: an unknown GPU is refused")
{
	struct gpu gpu;
	int fd;

	need_vm(&gpu, 0);
	CHECK_NE(smi(&gpu, gpu.id ^ 0x5555, &fd), 0);
}

CASE(smi_empty, "SMI_EVENTS: reading an empty file is EAGAIN, and it does not poll readable")
{
	struct pollfd p = { .events = POLLIN };
	char line[KFD_SMI_EVENT_MSG_SIZE];
	struct gpu gpu;
	int fd;

	need_smi(&gpu, &fd);
	CHECK_EQ(read(fd, line, sizeof(line)), -1);
	CHECK_EQ(errno, EAGAIN);
	p.fd = fd;
	CHECK_EQ(poll(&p, 1, 0), 0);
}

CASE(smi_short_mask, "SMI_EVENTS: a mask of less than 8 bytes is EFAULT")
{
	struct gpu gpu;
	int fd;

	need_smi(&gpu, &fd);
	CHECK_EQ(write(fd, "1234", 4), -1);
	CHECK_EQ(errno, EFAULT);
}

/* dma-buf */

static int export_bo(const struct gpu *gpu, uint64_t handle, int *fd)
{
	struct kfd_ioctl_export_dmabuf_args args = { .handle = handle, .flags = O_CLOEXEC, .dmabuf_fd = ~0u };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_EXPORT_DMABUF, &args);

	*fd = args.dmabuf_fd;
	return err;
}

CASE(export_bad_handle, "EXPORT_DMABUF: an unknown handle, and one of an unknown GPU, are refused")
{
	struct gpu gpu;
	int fd;

	need_vm(&gpu, 0);
	CHECK_NE(export_bo(&gpu, (uint64_t)gpu.id << 32 | 0x7fffffff, &fd), 0);
	CHECK_NE(export_bo(&gpu, (uint64_t)(gpu.id ^ 0x5555) << 32 | 1, &fd), 0);
}

CASE(export_works, "EXPORT_DMABUF: what succeeds hands out a file of the buffer's size")
{
	struct gpu gpu;
	struct bo bo;
	int fd, err;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, 4 * PAGE);
	err = export_bo(&gpu, bo.handle, &fd);
	if (err)
		SKIP("no dma-buf export here (%s)", tap_errno(err));
	CHECK_OP(fd, >=, 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 4 * PAGE);
}

CASE(import_bad, "IMPORT_DMABUF: a number that is no file, a file that is no dma-buf, an unknown GPU are refused")
{
	struct kfd_ioctl_import_dmabuf_args args = { .dmabuf_fd = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.gpu_id = gpu.id;
	args.va_addr = need_address(PAGE, PAGE);
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), 0);
	args.dmabuf_fd = gpu.fd;
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), 0);
	args.gpu_id ^= 0x5555;
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), 0);
}

CASE(dmabuf_info_bad, "GET_DMABUF_INFO: a file that is no dma-buf of ours is refused")
{
	struct kfd_ioctl_get_dmabuf_info_args args = { 0 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.dmabuf_fd = gpu.fd;
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_GET_DMABUF_INFO, &args), 0);
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
		CHECK_NE(err, 0);
}

/* CRIU */

CASE(criu_bad_op, "CRIU_OP: an unknown operation is refused")
{
	struct kfd_ioctl_criu_args args = { .op = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_CRIU_OP, &args), 0);
}

static void drop_root_and_try(void *unused)
{
	struct kfd_ioctl_criu_args args = { .op = KFD_CRIU_OP_PROCESS_INFO };
	int own;

	if (chmod("/dev/kfd", 0666) || setgid(65534) || setuid(65534))
		_exit(TAP_STATUS_SKIP);
	own = open("/dev/kfd", O_RDWR);
	if (own < 0)
		_exit(TAP_STATUS_SKIP);
	CHECK_ERR(kfd_call(own, AMDKFD_IOC_CRIU_OP, &args), EACCES);
}

CASE(criu_unprivileged, "CRIU_OP: without the capability is EACCES")
{
	struct stat before;
	int status;

	close(need_kfd());
	if (geteuid())
		SKIP("needs root to give it up");
	CHECK_EQ(stat("/dev/kfd", &before), 0);
	status = in_child(drop_root_and_try, NULL);
	CHECK_EQ(chmod("/dev/kfd", before.st_mode & 07777), 0);
	if (status == TAP_STATUS_SKIP)
		SKIP("cannot give up root here");
	CHECK_EQ(status, 0);
}

/* Debugger and profiler */

CASE(dbg_bad_pid, "DBG_TRAP: a process that does not exist is refused")
{
	struct kfd_ioctl_dbg_trap_args args = { .pid = 0x3fffffff, .op = KFD_IOC_DBG_TRAP_ENABLE };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), 0);
}

CASE(dbg_before_enable, "DBG_TRAP: an operation before enabling is refused")
{
	struct kfd_ioctl_dbg_trap_args args = { .op = KFD_IOC_DBG_TRAP_SET_FLAGS };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.pid = getpid();
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_DBG_TRAP, &args), 0);
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
	if (access("/sys/module/rkfd", F_OK))
		CHECK_NE(err, ESRCH);
	else
		CHECK_ERR(err, ENODEV);
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
CASE(profiler_bad_op, "PROFILER: an unknown operation is refused")
{
	struct kfd_ioctl_profiler_args args = { .op = 1000 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_NE(kfd_call(gpu.fd, AMDKFD_IOC_PROFILER, &args), 0);
}
#endif
