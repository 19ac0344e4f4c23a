// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Control groups of device memory: VRAM is charged to the group of the process that makes a buffer, to the byte and as
 * long as the buffer is there; a group at its limit makes room of its own, and others' memory stays.
 *
 * Needs root, and the dmem controller of a cgroup2 mount at /sys/fs/cgroup.
 */
#include "files.h"
#include "group.h"
#include "native.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"
#define MIB (1ul << 20)
#define CHUNK (6 * MIB)
#define WORDS (CHUNK / 8)
/* What one SDMA packet copies on every GPU. */
#define PACKET (2 * MIB)
/* Buffers of a member. */
#define MOST 64
/* Where a file of the native interface shows them. */
#define NATIVE_AT(n) ((1ul << 32) + (n) * 16 * MIB)

/* What a member is to do. */
enum act {
	ALLOC, /* Makes buffer `n` of `bytes`; of whole chunks it fills each word. */
	SYSTEM_ALLOC, /* The same in system memory, not filled. */
	FREE,
	COMPARE, /* By the CPU; a process of /dev/kfd also by the GPU. */
	TOUCH, /* Maps it where it is mapped. */
};

struct order {
	enum act act;
	unsigned int n;
	uint64_t bytes;
};

/* A process of a group that does what it is told. */
struct member {
	pid_t pid;
	int line;
};

static char region[128], address[64];

static void read_address(const struct gpu *gpu)
{
	char link[128], target[512];

	snprintf(link, sizeof(link), "/sys/class/drm/renderD%u/device", gpu->render_minor);
	CHECK(realpath(link, target));
	snprintf(address, sizeof(address), "%.63s", strrchr(target, '/') + 1);
	snprintf(region, sizeof(region), "drm/%s/vram", address);
}

/* Whether a file of a group has a line for the region, and the number in it. */
static bool find_number(const char *directory, const char *file, uint64_t *number)
{
	char path[256], line[256];
	size_t skip = strlen(region);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	f = fopen(path, "re");
	if (!f)
		FAIL("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, region, skip) || line[skip] != ' ')
			continue;
		/* One line each. */
		CHECK(!found);
		found = true;
		*number = strtoull(line + skip, NULL, 10);
	}
	fclose(f);
	return found;
}

static uint64_t charged(const struct group *group)
{
	uint64_t number = 0;

	CHECK(find_number(group->path, "dmem.current", &number));
	return number;
}

static void await_charged(const struct group *group, uint64_t bytes)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (charged(group) != bytes && now_ms() < end)
		usleep(10000);
	CHECK_EQ(charged(group), bytes);
}

static void set_number(const struct group *group, const char *file, uint64_t bytes)
{
	char text[192];

	snprintf(text, sizeof(text), "%s %llu", region, (unsigned long long)bytes);
	write_text(group->path, file, text);
}

/* The GPU, and a group without a limit. */
static void need_dmem(struct gpu *gpu, struct group *group)
{
	need_vm(gpu, 0);
	read_address(gpu);
	need_group(group);
	write_text(ROOT, "cgroup.subtree_control", "+dmem");
	CHECK_EQ(charged(group), 0);
}

/* What a member has. */
static struct {
	bool native;
	/* Of itself: its words are no other one's. */
	pid_t pid;
	struct gpu gpu;
	struct nfile file;
	struct queue q;
	struct bo copy, fence;
	uint32_t fences;
	struct bo bos[MOST];
	struct nbo nbos[MOST];
} me;

static uint64_t word(unsigned int n, uint64_t at)
{
	return ((uint64_t)me.pid << 40 | (uint64_t)n << 32 | at) * 0x9e3779b97f4a7c15ul;
}

static void compare(const volatile uint64_t *words, unsigned int n, const char *who)
{
	for (uint64_t at = 0; at < WORDS; at++) {
		uint64_t seen = words[at];

		if (seen != word(n, at))
			FAIL("buffer %u, word %#lx: the %s sees %#lx, not %#lx", n, at, who, seen, word(n, at));
	}
}

static void compare_by_gpu(unsigned int n)
{
	struct packets p = { .n = 0 };

	memset((void *)me.copy.va, 0x5a, CHUNK);
	for (uint64_t at = 0; at < CHUNK; at += PACKET)
		sdma_copy(&p, me.bos[n].va + at, me.copy.va + at, PACKET);
	sdma_fence(&p, me.fence.va, ++me.fences);
	submit(&me.q, &p);
	await32(bo32(&me.fence, 0), me.fences, "the fence of a copy");
	compare(bo64(&me.copy, 0), n, "GPU");
}

static int alloc(const struct order *order)
{
	bool in_vram = order->act == ALLOC;
	struct nbo *nbo = &me.nbos[order->n];
	struct bo *bo = &me.bos[order->n];
	volatile uint64_t *words;
	int err;

	if (me.native) {
		err = nbo_create(&me.file, nbo, in_vram ? DRM_RKFD_HEAP_VRAM : DRM_RKFD_HEAP_SYSTEM, order->bytes,
				 DRM_RKFD_BO_CPU_ACCESS);
		if (err)
			return err;
		nbo->cpu = mmap(NULL, nbo->size, PROT_READ | PROT_WRITE, MAP_SHARED, me.file.fd, nbo->mmap_offset);
		CHECK(nbo->cpu != MAP_FAILED);
		CHECK_OK(bind_one(&me.file, NATIVE_AT(order->n), nbo->size, nbo->handle, 0));
		words = (volatile uint64_t *)nbo->cpu;
	} else {
		err = bo_alloc(&me.gpu, bo, in_vram ? FLAGS_VRAM : FLAGS_GTT, order->bytes);
		if (err)
			return err;
		CHECK_OK(bo_map(&me.gpu, bo));
		words = bo64(bo, 0);
	}
	if (order->bytes == CHUNK)
		for (uint64_t at = 0; at < WORDS; at++)
			words[at] = word(order->n, at);
	return 0;
}

static int follow(const struct order *order)
{
	struct nbo *nbo = &me.nbos[order->n];
	struct bo *bo = &me.bos[order->n];

	switch (order->act) {
	case ALLOC:
	case SYSTEM_ALLOC:
		return alloc(order);
	case FREE:
		if (me.native) {
			CHECK_OK(unbind_one(&me.file, NATIVE_AT(order->n), nbo->size));
			drop_nbo(&me.file, nbo);
		} else {
			drop_bo(&me.gpu, bo);
		}
		return 0;
	case COMPARE:
		if (me.native) {
			compare((volatile uint64_t *)nbo->cpu, order->n, "CPU");
		} else {
			compare_by_gpu(order->n);
			compare(bo64(bo, 0), order->n, "CPU");
		}
		return 0;
	case TOUCH:
		if (!me.native)
			return bo_map(&me.gpu, bo);
		CHECK_OK(unbind_one(&me.file, NATIVE_AT(order->n), nbo->size));
		return bind_one(&me.file, NATIVE_AT(order->n), nbo->size, nbo->handle, 0);
	}
	return EINVAL;
}

static void serve(const struct group *group, int line, bool native)
{
	struct order order;
	int err = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	group_join(group);
	me.native = native;
	me.pid = getpid();
	if (native) {
		need_file(&me.file);
	} else {
		need_vm(&me.gpu, 0);
		await_queue(&me.gpu, &me.q, KFD_IOC_QUEUE_TYPE_SDMA);
		need_bo(&me.gpu, &me.copy, FLAGS_GTT, CHUNK);
		need_bo(&me.gpu, &me.fence, FLAGS_GTT, PAGE);
	}
	do {
		CHECK_EQ(write(line, &err, sizeof(err)), (ssize_t)sizeof(err));
	} while (read(line, &order, sizeof(order)) == (ssize_t)sizeof(order) && (err = follow(&order), true));
	_exit(0);
}

static int answer(const struct member *m)
{
	int err;

	if (read(m->line, &err, sizeof(err)) != (ssize_t)sizeof(err))
		child_gave_up(m->pid);
	return err;
}

static void begin_member(struct member *m, const struct group *group, bool native)
{
	int line[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
	fflush(stdout);
	m->pid = fork();
	CHECK_NE(m->pid, -1);
	if (m->pid == 0) {
		close(line[0]);
		serve(group, line[1], native);
	}
	close(line[1]);
	m->line = line[0];
	CHECK_EQ(answer(m), 0);
}

static int tell(const struct member *m, enum act act, unsigned int n, uint64_t bytes)
{
	struct order order = { .act = act, .n = n, .bytes = bytes };

	CHECK_EQ(write(m->line, &order, sizeof(order)), (ssize_t)sizeof(order));
	return answer(m);
}

/* It ends without giving anything back itself. */
static void end_member(struct member *m)
{
	int status;

	CHECK_EQ(kill(m->pid, SIGKILL), 0);
	CHECK_EQ(waitpid(m->pid, &status, 0), m->pid);
	close(m->line);
}

static void charge_and_give_back(bool native)
{
	uint64_t total = 0, all = 0;
	struct group group;
	struct member m;
	struct gpu gpu;

	need_dmem(&gpu, &group);
	CHECK(find_number(ROOT, "dmem.capacity", &total));
	CHECK_EQ(total, gpu.vram);
	begin_member(&m, &group, native);
	CHECK_EQ(charged(&group), 0);
	CHECK_OK(tell(&m, ALLOC, 0, CHUNK));
	CHECK_EQ(charged(&group), CHUNK);
	CHECK_OK(tell(&m, ALLOC, 1, PAGE));
	CHECK_EQ(charged(&group), CHUNK + PAGE);
	CHECK_OK(tell(&m, SYSTEM_ALLOC, 2, MIB));
	CHECK_EQ(charged(&group), CHUNK + PAGE);
	CHECK(find_number(ROOT, "dmem.current", &all));
	CHECK_OP(all, >=, CHUNK + PAGE);
	CHECK_OK(tell(&m, FREE, 0, 0));
	await_charged(&group, PAGE);
	CHECK_OK(tell(&m, ALLOC, 0, 3 * PAGE));
	CHECK_EQ(charged(&group), 4 * PAGE);
	/* Somebody outside of the group. */
	need_bo(&gpu, &me.bos[0], FLAGS_VRAM, CHUNK);
	CHECK_EQ(charged(&group), 4 * PAGE);
	end_member(&m);
	await_charged(&group, 0);
	drop_group(&group);
}

CASE(kfd_charges, "VRAM is charged to the group of its process, to the byte, until it is given back or the process ends")
{
	charge_and_give_back(false);
}

CASE(native_charges, "so is VRAM of the native interface")
{
	charge_and_give_back(true);
}

/* Three buffers fit into the limit, eight are made. */
static void exceed(bool native)
{
	enum { FIT = 3, MADE = 8, OTHERS = 2 };
	struct group group, other;
	struct member m, o;
	struct gpu gpu;
	uint64_t end;

	need_dmem(&gpu, &group);
	need_group(&other);
	set_number(&group, "dmem.max", FIT * CHUNK + MIB);
	begin_member(&o, &other, native);
	for (unsigned int n = 0; n < OTHERS; n++)
		CHECK_OK(tell(&o, ALLOC, n, CHUNK));
	begin_member(&m, &group, native);
	for (unsigned int n = 0; n < MADE; n++) {
		CHECK_OK(tell(&m, ALLOC, n, CHUNK));
		CHECK_EQ(charged(&group), (n < FIT ? n + 1 : FIT) * CHUNK);
		CHECK_EQ(charged(&other), OTHERS * CHUNK);
	}
	for (unsigned int n = 0; n < MADE; n++)
		CHECK_OK(tell(&m, COMPARE, n, 0));
	for (unsigned int n = 0; n < OTHERS; n++)
		CHECK_OK(tell(&o, COMPARE, n, 0));
	CHECK_EQ(charged(&group), FIT * CHUNK);

	/* Those that were made last are in VRAM. What makes room brings others back: at once, or with a later call. */
	for (unsigned int n = MADE - FIT; n < MADE; n++)
		CHECK_OK(tell(&m, FREE, n, 0));
	end = now_ms() + WAIT_MS;
	while (charged(&group) != FIT * CHUNK && now_ms() < end) {
		CHECK_OK(tell(&m, TOUCH, 0, 0));
		usleep(10000);
	}
	CHECK_EQ(charged(&group), FIT * CHUNK);
	for (unsigned int n = 0; n < MADE - FIT; n++)
		CHECK_OK(tell(&m, COMPARE, n, 0));
	CHECK_EQ(charged(&other), OTHERS * CHUNK);
	end_member(&m);
	await_charged(&group, 0);
	CHECK_EQ(charged(&other), OTHERS * CHUNK);
	end_member(&o);
	await_charged(&other, 0);
	drop_group(&group);
	drop_group(&other);
}

CASE_LIMIT(kfd_limit, "a group at its limit evicts what is its own, reads it as before, and gets it back when there is room", 120)
{
	exceed(false);
}

CASE_LIMIT(native_limit, "so does a group of the native interface", 120)
{
	exceed(true);
}

/* One member evicts what another one of its group has, and not what a third has. */
CASE_LIMIT(shared_limit, "processes of a group make room for each other", 120)
{
	struct group group;
	struct member one, two;
	struct gpu gpu;

	need_dmem(&gpu, &group);
	set_number(&group, "dmem.max", 2 * CHUNK);
	begin_member(&one, &group, false);
	begin_member(&two, &group, true);
	for (unsigned int n = 0; n < 2; n++)
		CHECK_OK(tell(&one, ALLOC, n, CHUNK));
	CHECK_EQ(charged(&group), 2 * CHUNK);
	for (unsigned int n = 0; n < 2; n++) {
		CHECK_OK(tell(&two, ALLOC, n, CHUNK));
		CHECK_EQ(charged(&group), 2 * CHUNK);
	}
	for (unsigned int n = 0; n < 2; n++) {
		CHECK_OK(tell(&one, COMPARE, n, 0));
		CHECK_OK(tell(&two, COMPARE, n, 0));
	}
	end_member(&one);
	end_member(&two);
	await_charged(&group, 0);
	drop_group(&group);
}

static void ask_too_much(bool native)
{
	struct group group, other;
	struct member m, o;
	struct gpu gpu;

	need_dmem(&gpu, &group);
	need_group(&other);
	begin_member(&o, &other, native);
	CHECK_OK(tell(&o, ALLOC, 0, CHUNK));
	begin_member(&m, &group, native);
	set_number(&group, "dmem.max", CHUNK - PAGE);
	CHECK_ERR(tell(&m, ALLOC, 0, CHUNK), ENOMEM);
	CHECK_EQ(charged(&group), 0);
	CHECK_EQ(charged(&other), CHUNK);
	CHECK_OK(tell(&o, COMPARE, 0, 0));
	set_number(&group, "dmem.max", CHUNK);
	CHECK_OK(tell(&m, ALLOC, 0, CHUNK));
	CHECK_EQ(charged(&group), CHUNK);
	end_member(&m);
	end_member(&o);
	await_charged(&group, 0);
	await_charged(&other, 0);
	drop_group(&group);
	drop_group(&other);
}

CASE(kfd_too_much, "what does not fit into the limit of the group is ENOMEM")
{
	ask_too_much(false);
}

CASE(native_too_much, "so it is by the native interface")
{
	ask_too_much(true);
}

/* Others take all VRAM that they get. */
CASE_LIMIT(protected, "what dmem.min protects is not evicted for others, what dmem.low protects is the last", 240)
{
	enum { MINE = 2 };
	struct group least, low, none, taker;
	struct member owners[3], m;
	unsigned int made = 0;
	struct gpu gpu;
	int err;

	need_dmem(&gpu, &least);
	need_group(&low);
	need_group(&none);
	need_group(&taker);
	begin_member(&owners[0], &least, false);
	begin_member(&owners[1], &low, false);
	begin_member(&owners[2], &none, false);
	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int n = 0; n < MINE; n++)
			CHECK_OK(tell(&owners[i], ALLOC, n, CHUNK));
	set_number(&least, "dmem.min", MINE * CHUNK);
	set_number(&low, "dmem.low", MINE * CHUNK);
	begin_member(&m, &taker, false);
	while (made < MOST && !(err = tell(&m, ALLOC, made, CHUNK))) {
		made++;
		CHECK_EQ(charged(&taker), made * CHUNK);
		CHECK_EQ(charged(&least), MINE * CHUNK);
		if (charged(&low) < MINE * CHUNK)
			CHECK_EQ(charged(&none), 0);
	}
	tap_note("%u buffers", made);
	CHECK_OP(made, <, MOST);
	CHECK_ERR(err, ENOMEM);
	CHECK_EQ(charged(&none), 0);
	CHECK_EQ(charged(&low), 0);
	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int n = 0; n < MINE; n++)
			CHECK_OK(tell(&owners[i], COMPARE, n, 0));
	end_member(&m);
	await_charged(&taker, 0);
	for (unsigned int i = 0; i < 3; i++)
		end_member(&owners[i]);
	await_charged(&least, 0);
	drop_group(&least);
	drop_group(&low);
	drop_group(&none);
	drop_group(&taker);
}

CASE_LIMIT(unbound, "the region ends with the device, also while memory of it is charged, and begins anew", 120)
{
	struct group group;
	struct member m, n;
	uint64_t number;
	struct gpu gpu;
	uint64_t end;

	need_dmem(&gpu, &group);
	begin_member(&m, &group, false);
	begin_member(&n, &group, true);
	CHECK_OK(tell(&m, ALLOC, 0, CHUNK));
	CHECK_OK(tell(&n, ALLOC, 0, CHUNK));
	CHECK_EQ(charged(&group), 2 * CHUNK);
	write_text("/sys/bus/pci/drivers/rkfd", "unbind", address);
	CHECK(!find_number(ROOT, "dmem.capacity", &number));
	CHECK(!find_number(group.path, "dmem.current", &number));
	end_member(&n);
	write_text("/sys/bus/pci/drivers/rkfd", "bind", address);
	CHECK(find_number(ROOT, "dmem.capacity", &number));
	CHECK_EQ(number, gpu.vram);
	CHECK_EQ(charged(&group), 0);
	/* What is left of before is none of the new region. */
	end_member(&m);
	CHECK_EQ(charged(&group), 0);
	for (end = now_ms() + WAIT_MS; !has_node() && now_ms() < end;)
		usleep(10000);
	begin_member(&n, &group, true);
	CHECK_OK(tell(&n, ALLOC, 0, CHUNK));
	CHECK_EQ(charged(&group), CHUNK);
	end_member(&n);
	await_charged(&group, 0);
	drop_group(&group);
}
