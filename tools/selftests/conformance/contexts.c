// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Contexts: process objects of one descriptor each (CREATE_PROCESS), of which one program has several. What one of them
 * has, does and suffers is its own, and it ends with its descriptor.
 */
#include "userptr.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef AMDKFD_IOC_CREATE_PROCESS
enum { CONTEXTS = 6, GUEST_PAGES = 4, CALLERS = 8 };

/* Besides `f`, which is in the process that all other descriptors stand for. */
static struct fixture c[CONTEXTS];

static int create_process(int fd)
{
	return kfd_call(fd, AMDKFD_IOC_CREATE_PROCESS, NULL);
}

static int need_context(void)
{
	int fd = need_kfd();

	CHECK_OK(create_process(fd));
	return fd;
}

/* amdkfd has neither memory of the process nor SVM in contexts; the queues of these programs have some. */
static void need_rkfd(void)
{
	if (!is_rkfd())
		SKIP("other drivers show no memory of the process in contexts");
}

/* A context with an address space, a queue, and a buffer for what the GPU tells. */
static void begin_context(struct fixture *x)
{
	need_vm_of(&x->gpu, 0, need_context());
	need_queue(&x->gpu, &x->q, COMPUTE);
	need_bo(&x->gpu, &x->out, FLAGS_GTT, 2 * PAGE);
	x->p.n = 0;
	x->ticket = 0;
}

/* … and pages of the process, at the address where the CPU has them. */
static void begin_context_with_memory(struct fixture *x, uint64_t size)
{
	begin_context(x);
	CHECK_OK(bo_wrap(&x->gpu, &x->user, FLAGS_USERPTR, memory(size, PROT_READ | PROT_WRITE), size));
	CHECK_OK(bo_map(&x->gpu, &x->user));
}

/* Gives the mappings of the queue's buffers in VRAM back, which would keep them. */
static void unmap_vram(struct fixture *x)
{
	CHECK_EQ(munmap((void *)x->q.eop.va, x->q.eop.size), 0);
	CHECK_EQ(munmap((void *)x->q.save.va, x->q.save.size), 0);
}

/* Closes both descriptors, and gives mappings back that would keep the first one open, and VRAM. */
static void end_context(struct fixture *x)
{
	CHECK_EQ(munmap(x->q.slice, DOORBELL_SLICE), 0);
	unmap_vram(x);
	CHECK_EQ(close(x->gpu.drm), 0);
	CHECK_EQ(close(x->gpu.fd), 0);
}

static int get_version(int fd)
{
	struct kfd_ioctl_get_version_args args = { 0 };

	return kfd_call(fd, AMDKFD_IOC_GET_VERSION, &args);
}

CASE(one_each, "CREATE_PROCESS: a second one on a descriptor is EINVAL, and other descriptors stay the process's")
{
	struct gpu gpu, other = { .fd = need_kfd() }, context = { .fd = need_context() }, later;
	struct event ev, own;

	CHECK_ERR(create_process(context.fd), EINVAL);
	need_vm(&gpu, 0);
	later.fd = need_kfd();
	need_event(&gpu, false, &ev);
	CHECK_OK(event_set(&other, ev.id));
	CHECK_OK(event_set(&later, ev.id));
	CHECK_ERR(event_set(&context, ev.id), EINVAL);
	CHECK_OK(event_create(&context, KFD_IOC_EVENT_MEMORY, false, 0, &own));
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_OK(event_destroy(&context, own.id));
	CHECK_ERR(event_destroy(&context, own.id), EINVAL);
	/* The descriptor of the first open may have one as any other. */
	CHECK_OK(create_process(other.fd));
	CHECK_ERR(create_process(other.fd), EINVAL);
	CHECK_OK(get_version(other.fd));
}

static pthread_barrier_t together;

static void *make_one(void *fd)
{
	pthread_barrier_wait(&together);
	return (void *)(intptr_t)create_process(*(int *)fd);
}

CASE(one_of_many, "CREATE_PROCESS by many threads on one descriptor: one has success, for the others it is EINVAL")
{
	for (int round = 0; round < 20; round++) {
		int fd = need_kfd(), made = 0, refused = 0;
		pthread_t threads[CALLERS];

		CHECK_EQ(pthread_barrier_init(&together, NULL, CALLERS), 0);
		for (int i = 0; i < CALLERS; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, make_one, &fd), 0);
		for (int i = 0; i < CALLERS; i++) {
			void *err;

			CHECK_EQ(pthread_join(threads[i], &err), 0);
			made += (intptr_t)err == 0;
			refused += (intptr_t)err == EINVAL;
		}
		CHECK_EQ(made, 1);
		CHECK_EQ(refused, CALLERS - 1);
		CHECK_EQ(pthread_barrier_destroy(&together), 0);
		close(fd);
	}
}

CASE(objects, "buffers, queues and address spaces of the process are none of a context's, nor the reverse")
{
	struct bo bo[8];
	struct queue second;
	struct gpu fresh;

	need_rkfd();
	begin(PAGE);
	begin_context(&c[0]);
	/* More than the context has, so that the last handle and id name nothing there. */
	for (unsigned int i = 0; i < 8; i++)
		need_bo(&f.gpu, &bo[i], FLAGS_GTT, PAGE);
	need_queue(&f.gpu, &second, COMPUTE);
	CHECK_NE(second.args.queue_id, c[0].q.args.queue_id);
	CHECK_ERR(bo_free(&c[0].gpu, &bo[7]), EINVAL);
	CHECK_ERR(bo_map(&c[0].gpu, &bo[7]), ENOMEM);
	CHECK_ERR(queue_destroy(&c[0].gpu, second.args.queue_id), EINVAL);
	CHECK_ERR(acquire_vm(&c[0].gpu, f.gpu.drm), EBUSY);
	CHECK_ERR(acquire_vm(&f.gpu, c[0].gpu.drm), EBUSY);
	/* One that has none yet cannot have that of another. */
	fresh = f.gpu;
	fresh.fd = need_context();
	CHECK_ERR(acquire_vm(&fresh, f.gpu.drm), EINVAL);
	CHECK_ERR(acquire_vm(&fresh, c[0].gpu.drm), EINVAL);
	CHECK_OK(acquire_vm(&fresh, need_render(&f.gpu)));
	for (unsigned int i = 0; i < 8; i++)
		drop_bo(&f.gpu, &bo[i]);
	drop_queue(&f.gpu, &second);
	check_shared(&f, 0, 0x1234);
}

static int runtime(const struct gpu *gpu)
{
	struct kfd_ioctl_runtime_enable_args args = { .mode_mask = KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK };

	return kfd_call(gpu->fd, AMDKFD_IOC_RUNTIME_ENABLE, &args);
}

CASE(settings, "RUNTIME_ENABLE counts for a context alone; DBG_TRAP in one is EOPNOTSUPP, EINVAL without firmware scheduling")
{
	struct kfd_ioctl_dbg_trap_args args = { .pid = (uint32_t)getpid(), .op = KFD_IOC_DBG_TRAP_ENABLE };
	struct gpu gpu, context;

	need_rkfd();
	need_vm(&gpu, 0);
	need_vm_of(&context, 0, need_context());
	CHECK_OK(runtime(&gpu));
	CHECK_ERR(runtime(&gpu), EBUSY);
	CHECK_OK(runtime(&context));
	CHECK_ERR(runtime(&context), EBUSY);
	CHECK_ERR(kfd_call(context.fd, AMDKFD_IOC_DBG_TRAP, &args), scheduled_by_driver() ? EINVAL : EOPNOTSUPP);
}

/* What a guest has: pages that all have at the same address for the GPU. */
static uint64_t guests_at;
static volatile uint32_t *guest_memory[CONTEXTS];

static void begin_guests(void)
{
	guests_at = need_address(GUEST_PAGES * PAGE, PAGE);
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		guest_memory[i] = memory(GUEST_PAGES * PAGE, PROT_READ | PROT_WRITE);
		begin_context(&c[i]);
		CHECK_OK(wrap_at(&c[i], &c[i].user, guests_at, (void *)guest_memory[i], GUEST_PAGES * PAGE));
		CHECK_OK(bo_map(&c[i].gpu, &c[i].user));
	}
}

CASE_LIMIT(same_addresses, "memory of the process at one GPU address in each context: each reads and writes its own", 120)
{
	need_rkfd();
	begin_guests();
	/* All at once, each its own value. */
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		guest_memory[i][0] = 0x100 + i;
		pm4_write(&c[i].p, guests_at + PAGE, 0x200 + i);
		pm4_copy(&c[i].p, 1, guests_at, c[i].out.va, false);
		pm4_write(&c[i].p, c[i].out.va + PAGE, ++c[i].ticket);
		submit(&c[i].q, &c[i].p);
		c[i].p.n = 0;
	}
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		await32(bo32(&c[i].out, PAGE), c[i].ticket, "the last packet");
		CHECK_EQ(*bo32(&c[i].out, 0), 0x100 + i);
		CHECK_EQ(guest_memory[i][PAGE / 4], 0x200 + i);
	}
	/* Memory of one changes: it sees that, and nobody else does. */
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		CHECK_EQ(madvise((void *)guest_memory[i], PAGE, MADV_DONTNEED), 0);
		CHECK_EQ(gpu_reads(&c[i], 0), 0);
		for (unsigned int k = i + 1; k < CONTEXTS; k++)
			CHECK_EQ(gpu_reads(&c[k], 0), 0x100 + k);
		gpu_writes(&c[i], 0, 0x300 + i);
		CHECK_EQ(guest_memory[i][0], 0x300 + i);
	}
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		CHECK_EQ(guest_memory[i][0], 0x300 + i);
		CHECK_EQ(guest_memory[i][PAGE / 4], 0x200 + i);
	}
}

CASE_LIMIT(same_memory, "the same pages in all contexts: what one writes all others read, also after the pages have changed", 120)
{
	uint32_t *shared = memory(PAGE, PROT_READ | PROT_WRITE);

	need_rkfd();
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		begin_context(&c[i]);
		CHECK_OK(bo_wrap(&c[i].gpu, &c[i].user, FLAGS_USERPTR, shared, PAGE));
		CHECK_OK(bo_map(&c[i].gpu, &c[i].user));
	}
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		gpu_writes(&c[i], 0, 0x5000 + i);
		for (unsigned int k = 0; k < CONTEXTS; k++)
			CHECK_EQ(gpu_reads(&c[k], 0), 0x5000 + i);
		CHECK_EQ(madvise(shared, PAGE, MADV_DONTNEED), 0);
		for (unsigned int k = 0; k < CONTEXTS; k++)
			CHECK_EQ(gpu_reads(&c[k], 0), 0);
	}
}

static int svm(const struct gpu *gpu, uint32_t op, const volatile void *at, uint32_t *type)
{
	struct {
		uint64_t start, size;
		uint32_t op, n, type, value;
	} args = { (uintptr_t)at, PAGE, op, 1, *type, gpu->id };
	int err = kfd_call(gpu->fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x20, sizeof(args)), &args);

	*type = args.type;
	return err;
}

static bool is_raised(const struct gpu *gpu, const struct event *ev)
{
	return event_poll(gpu, ev->id) == KFD_IOC_WAIT_RESULT_COMPLETE;
}

CASE(attributes, "SVM: attributes of one context are none of another's; an access without is a fault of that one alone")
{
	uint32_t type = KFD_IOCTL_SVM_ATTR_ACCESS;
	struct event of_process, of_first, of_last;
	volatile uint32_t *p;

	need_rkfd();
	begin(PAGE);
	for (unsigned int i = 0; i < 3; i++)
		begin_context_with_memory(&c[i], PAGE);
	p = memory(PAGE, PROT_READ | PROT_WRITE);
	p[0] = 77;
	CHECK_OK(svm(&c[0].gpu, KFD_IOCTL_SVM_OP_SET_ATTR, p, &type));
	CHECK_OK(svm(&c[0].gpu, KFD_IOCTL_SVM_OP_GET_ATTR, p, &type));
	CHECK_EQ(type, KFD_IOCTL_SVM_ATTR_ACCESS);
	type = KFD_IOCTL_SVM_ATTR_ACCESS;
	CHECK_OK(svm(&c[1].gpu, KFD_IOCTL_SVM_OP_GET_ATTR, p, &type));
	CHECK_EQ(type, KFD_IOCTL_SVM_ATTR_NO_ACCESS);
	pm4_copy(&c[0].p, 1, (uintptr_t)p, c[0].out.va, false);
	pm4_write(&c[0].p, (uintptr_t)p + 4, 78);
	run(&c[0]);
	CHECK_EQ(*bo32(&c[0].out, 0), 77);
	CHECK_EQ(p[1], 78);

	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_MEMORY, false, 0, &of_process));
	CHECK_OK(event_create(&c[0].gpu, KFD_IOC_EVENT_MEMORY, false, 0, &of_first));
	CHECK_OK(event_create(&c[2].gpu, KFD_IOC_EVENT_MEMORY, false, 0, &of_last));
	check_faults(&c[1], (uintptr_t)p);
	CHECK_EQ(p[0], 77);
	CHECK(!is_raised(&f.gpu, &of_process));
	CHECK(!is_raised(&c[0].gpu, &of_first));
	CHECK(!is_raised(&c[2].gpu, &of_last));
	/* Its queues are stopped; those of the others are not. */
	check_shared(&f, 0, 0x1000);
	check_shared(&c[0], 0, 0x2000);
	check_shared(&c[2], 0, 0x3000);
	pm4_write(&c[0].p, (uintptr_t)p, 79);
	run(&c[0]);
	CHECK_EQ(p[0], 79);
}

CASE(closed, "the descriptor is closed: the context ends with its last mapping, its memory comes back, and others go on")
{
	const uint64_t size = 64 * MIB;
	uint64_t before;
	struct bo big;

	need_rkfd();
	begin(PAGE);
	before = available_settled(&f.gpu);
	begin_context_with_memory(&c[0], PAGE);
	need_bo(&c[0].gpu, &big, FLAGS_VRAM, size);
	CHECK(available(&f.gpu) <= before - size);
	CHECK_EQ(munmap((void *)big.va, size), 0);
	unmap_vram(&c[0]);
	/* The doorbells are mapped, and hold the descriptor: the queue works. */
	CHECK_EQ(close(c[0].gpu.fd), 0);
	check_shared(&c[0], 0, 0xc0de);
	CHECK(available(&f.gpu) <= before - size);
	/* Something to do for as long as the queue lives. */
	pm4_wait(&c[0].p, 3, c[0].out.va + 8, 1, 0xffffffff);
	submit(&c[0].q, &c[0].p);
	CHECK_EQ(munmap(c[0].q.slice, DOORBELL_SLICE), 0);
	CHECK_EQ(close(c[0].gpu.drm), 0);
	await_available(&f.gpu, before);
	check_shared(&f, 0, 0x4321);
	/* And again, to see that nothing is used up. */
	for (unsigned int i = 1; i < 4; i++) {
		begin_context_with_memory(&c[i], PAGE);
		check_shared(&c[i], 0, 0x100 + i);
		end_context(&c[i]);
	}
	await_available(&f.gpu, before);
	check_shared(&f, 0, 0x8765);
}

static void use_inherited(void *fd)
{
	if (get_version(*(int *)fd) != EBADF || create_process(*(int *)fd) != EBADF)
		_exit(1);
	close(*(int *)fd);
}

CASE(inherited, "a child gets EBADF for the descriptor of a context, and its end does not end the context")
{
	need_rkfd();
	begin_context_with_memory(&c[0], PAGE);
	check_shared(&c[0], 0, 1);
	CHECK_EQ(in_child(use_inherited, &c[0].gpu.fd), 0);
	check_shared(&c[0], 0, 2);
}

static void have_contexts(int ready)
{
	struct bo bo;

	begin(PAGE);
	for (unsigned int i = 0; i < 3; i++) {
		begin_context_with_memory(&c[i], PAGE);
		need_bo(&c[i].gpu, &bo, FLAGS_VRAM, 16 * MIB);
		pm4_wait(&c[i].p, 3, c[i].out.va + 8, 1, 0xffffffff);
		submit(&c[i].q, &c[i].p);
	}
	say_ready(ready);
	pause();
}

CASE(killed, "a program with contexts whose queues wait is killed: nothing of it is left")
{
	uint64_t before;
	pid_t pid;

	need_rkfd();
	need_vm(&f.gpu, 0);
	before = available_settled(&f.gpu);
	pid = start_child(have_contexts);
	CHECK(available(&f.gpu) < before);
	kill_child(pid);
	await_available(&f.gpu, before);
}

/* Memory of which the caller is the only one to bring it in, as it says on the descriptor that is returned. */
static int serve_nothing(void *at, uint64_t size)
{
	struct uffdio_register reg = { .range = { (uintptr_t)at, size }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	CHECK_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	return fd;
}

CASE(closed_by_pager, "the thread that is to bring pages in closes the descriptor instead: it does not wait for itself")
{
	struct pollfd asked;

	need_rkfd();
	begin(PAGE);
	begin_context_with_memory(&c[0], 2 * PAGE);
	check_shared(&c[0], 0, 0xabc);
	asked = (struct pollfd){ .fd = serve_nothing((void *)c[0].user.va, 2 * PAGE), .events = POLLIN };
	CHECK_EQ(madvise((void *)c[0].user.va, 2 * PAGE, MADV_DONTNEED), 0);
	/* The driver looks for the pages, to let the queue run again. */
	CHECK_EQ(poll(&asked, 1, (int)WAIT_MS), 1);
	end_context(&c[0]);
	check_shared(&f, 0, 0xdef);
	/* Whoever waits gets a page of zeroes. */
	CHECK_EQ(close(asked.fd), 0);
	check_shared(&f, 0, 0x123);
}
#else
CASE(create_process, "CREATE_PROCESS")
{
	SKIP("the header of this kernel does not have it");
}
#endif

int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
