// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: mirrors that cannot be made, and who passes which structures.
 */
#include "library_mirror.h"

#include <sys/wait.h>

/* rkfd_mirror_new() fails so with what the statements make of `good`, and gives no handle. */
#define REFUSED(err, text, ...)                                                    \
	do {                                                                       \
		struct rkfd_mirror *none_ = (void *)1;                             \
		struct rkfd_mirror_options o = good;                               \
		__VA_ARGS__;                                                       \
		FAILS(rkfd_mirror_new(space, &o, &none_), err, text);              \
		CHECK(!none_);                                                     \
	} while (0)

CASE(mirror_refused, "mirrors: what is refused has its errno, says why, and changes nothing")
{
	struct rkfd_mirror_info info = { .size = sizeof(info) };
	struct rkfd_space *space = need_space();
	char *memory = pages(4);
	struct rkfd_mirror_options good = range(memory, 4, AT), whole = all_memory();
	struct rkfd_mirror *m = (void *)1;

	REFUSED(EINVAL, "No rights: 3", o.rights = 3);
	REFUSED(EINVAL, "No way to fill a mirror: 2", o.filling = 2);
	REFUSED(EINVAL, "No flags of a mirror: 0x2", o.flags = 2);
	REFUSED(EINVAL, "has no range", o = whole; o.memory = memory);
	REFUSED(EINVAL, "has no range", o = whole; o.bytes = PAGE);
	REFUSED(EINVAL, "has no range", o = whole; o.address = PAGE);
	REFUSED(EINVAL, "filled by accesses", o = whole; o.filling = RKFD_FILLING_AT_ONCE);
	REFUSED(EINVAL, "MIRROR_CREATE", o.bytes = 0);
	REFUSED(EINVAL, "MIRROR_CREATE", o.bytes = PAGE + 8);
	REFUSED(EINVAL, "MIRROR_CREATE", o.memory = memory + 8);
	REFUSED(EINVAL, "MIRROR_CREATE", o.address = AT + 8);
	/* Neither can be bound. */
	REFUSED(EINVAL, "MIRROR_CREATE", o.address = 0);
	REFUSED(EINVAL, "MIRROR_CREATE", o.address = 1ul << 48);
	REFUSED(EOVERFLOW, "MIRROR_CREATE", o.memory = (char *)-PAGE);
	REFUSED(EOVERFLOW, "MIRROR_CREATE", o.address = -PAGE);
	REFUSED(EOVERFLOW, "MIRROR_CREATE", o.bytes = -PAGE);
	REFUSED(EFAULT, "MIRROR_CREATE", o.memory = (char *)0xffff800000000000ul);
	FAILS(rkfd_mirror_new(NULL, &good, &m), EINVAL, "space is NULL");
	CHECK(!m);
	FAILS(rkfd_mirror_new(space, NULL, &m), EINVAL, "rkfd_mirror_options is NULL");
	FAILS(rkfd_mirror_new(space, &good, NULL), EINVAL, "mirror is NULL");
	/* All of its addresses are free. */
	m = need_mirror(space, good);
	CHECK_EQ(about(m).shown, 4 * PAGE);
	FAILS(rkfd_mirror_describe(NULL, &info), EINVAL, "mirror is NULL");
	FAILS(rkfd_mirror_describe(m, NULL), EINVAL, "rkfd_mirror_info is NULL");
	FAILS(rkfd_mirror_populate(NULL, AT, PAGE), EINVAL, "mirror is NULL");
	FAILS(rkfd_mirror_populate(m, AT, 0), EINVAL, "MIRROR_POPULATE");
	FAILS(rkfd_mirror_populate(m, AT, 8), EINVAL, "MIRROR_POPULATE");
	FAILS(rkfd_mirror_populate(m, AT + 8, PAGE), EINVAL, "MIRROR_POPULATE");
	FAILS(rkfd_mirror_populate(m, AT - PAGE, PAGE), EINVAL, "MIRROR_POPULATE");
	FAILS(rkfd_mirror_populate(m, AT + 3 * PAGE, 2 * PAGE), EINVAL, "MIRROR_POPULATE");
	FAILS(rkfd_mirror_populate(m, AT, -PAGE), EINVAL, "MIRROR_POPULATE");
	CHECK_EQ(munmap(memory + PAGE, PAGE), 0);
	FAILS(rkfd_mirror_populate(m, AT, 4 * PAGE), EFAULT, "MIRROR_POPULATE");
	OK(rkfd_mirror_populate(m, AT + 2 * PAGE, 2 * PAGE));
	rkfd_mirror_free(m);
	rkfd_mirror_free(NULL);
	rkfd_space_close(space);
}

/* rkfd_mirror_migrate() fails so with what the statements make of `good`, and tells that nothing has moved. */
#define UNMOVED(err, text, ...)                                                    \
	do {                                                                       \
		struct rkfd_migrate_options o = good;                              \
		uint64_t moved_ = 1;                                               \
		__VA_ARGS__;                                                       \
		FAILS(rkfd_mirror_migrate(m, &o, &moved_, NULL), err, text);       \
		CHECK_EQ(moved_, 0);                                               \
	} while (0)

CASE(mirror_unmoved, "mirrors: moves that are refused have their errno, say why, and move nothing")
{
	struct rkfd_space *space = need_space();
	char *memory = pages(4);
	struct rkfd_mirror *m = need_mirror(space, range(memory, 4, AT));
	struct rkfd_migrate_options good = {
		.size = sizeof(good), .flags = RKFD_MIGRATE_NOW, .address = AT, .bytes = 4 * PAGE, .place = RKFD_PLACE_VRAM,
	};
	struct {
		struct rkfd_migrate_options now;
		uint32_t later[2];
	} newer = { .now = good, .later = { 0, 7 } };
	uint64_t moved = 1, stayed = 1;

	fill(memory, 4, 0x10);
	UNMOVED(EINVAL, "No place of memory: 4", o.place = 4);
	UNMOVED(EINVAL, "No flags of a migration: 0x9", o.flags |= 8);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.flags = 0);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.place = RKFD_PLACE_POLICY);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.place = RKFD_PLACE_STAY);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.flags = RKFD_MIGRATE_FILL);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.flags |= RKFD_MIGRATE_FILL; o.place = RKFD_PLACE_SYSTEM);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.flags = RKFD_MIGRATE_KEEP; o.granularity = 22);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.bytes = 0);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.bytes = 5 * PAGE);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.bytes = -PAGE);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.address = AT + 8);
	UNMOVED(EINVAL, "MIRROR_MIGRATE", o.address = AT - PAGE);
	UNMOVED(EINVAL, "sizeof(struct rkfd_migrate_options)", o.size = 28);
	FAILS(rkfd_mirror_migrate(NULL, &good, &moved, &stayed), EINVAL, "mirror is NULL");
	CHECK_EQ(moved, 0);
	CHECK_EQ(stayed, 0);
	FAILS(rkfd_mirror_migrate(m, NULL, NULL, NULL), EINVAL, "rkfd_migrate_options is NULL");
	/* Of a newer header: what it does not ask for is no error. */
	newer.now.size = sizeof(newer);
	FAILS(rkfd_mirror_migrate(m, &newer.now, NULL, NULL), E2BIG, "does not know");
	newer.later[1] = 0;
	OK(rkfd_mirror_migrate(m, &newer.now, &moved, &stayed));
	CHECK_EQ(moved + stayed, 4 * PAGE);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(*word(memory, i * PAGE), 0x10 + i);
	rkfd_mirror_free(m);
	rkfd_space_close(space);
}

CASE(mirror_taken, "mirrors and what is bound share no GPU addresses: EADDRINUSE for whoever comes later")
{
	struct rkfd_space *space = need_space();
	struct rkfd_bo *bo = need_bo(space, RKFD_HEAP_SYSTEM, PAGE);
	char *memory = pages(4);
	struct rkfd_mirror_options good = range(memory, 4, AT);
	struct rkfd_bind_list *list;
	struct rkfd_mirror *m;

	bind_at(space, AT + 3 * PAGE, bo, 0);
	REFUSED(EADDRINUSE, "MIRROR_CREATE", (void)o);
	m = need_mirror(space, range(memory, 3, AT));
	REFUSED(EADDRINUSE, "MIRROR_CREATE", o.address = AT - 3 * PAGE);
	REFUSED(EADDRINUSE, "MIRROR_CREATE", o.bytes = PAGE);
	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, AT + 2 * PAGE, bo, 0, PAGE, RKFD_RANGE_READ));
	FAILS(rkfd_space_bind(space, list), EADDRINUSE, "BIND");
	CHECK_EQ(about(m).shown, 3 * PAGE);
	rkfd_mirror_free(m);
	OK(rkfd_space_bind(space, list));
	REFUSED(EADDRINUSE, "MIRROR_CREATE", o.bytes = 3 * PAGE);
	rkfd_bind_list_free(list);
	rkfd_bo_free(bo);
	rkfd_space_close(space);
}

CASE(mirror_mode, "accesses fill a mirror where the GPU repeats them, else EOPNOTSUPP; after the first queue EBUSY; all memory has one mirror")
{
	char *memory = pages(4);
	struct rkfd_mirror_options good = range(memory, 4, AT);
	struct rkfd_space *space = need_space();
	struct rkfd_space_queue *q;
	struct rkfd_mirror *m;
	int rc;

	good.filling = RKFD_FILLING_ON_ACCESS;
	rc = rkfd_mirror_new(space, &good, &m);
	if (rc) {
		CHECK_ERR(-rc, EOPNOTSUPP);
		CHECK(!m);
		REFUSED(EOPNOTSUPP, "MIRROR_CREATE", o = all_memory());
		/* Neither is there now. */
		m = need_mirror(space, range(memory, 4, AT));
		CHECK_EQ(about(m).shown, 4 * PAGE);
		rkfd_mirror_free(m);
		rkfd_space_close(space);
		return;
	}
	REFUSED(EADDRINUSE, "MIRROR_CREATE", o = all_memory());
	rkfd_mirror_free(m);
	m = need_mirror(space, all_memory());
	REFUSED(EADDRINUSE, "MIRROR_CREATE", o = all_memory());
	REFUSED(EADDRINUSE, "MIRROR_CREATE", (void)o);
	rkfd_mirror_free(m);
	m = need_mirror(space, good);
	rkfd_mirror_free(m);
	rkfd_space_close(space);
	space = need_space();
	OK(rkfd_space_queue_new(space, RKFD_QUEUE_SDMA, QUEUE_AT, &q));
	REFUSED(EBUSY, "MIRROR_CREATE", (void)o);
	REFUSED(EBUSY, "MIRROR_CREATE", o = all_memory());
	m = need_mirror(space, range(memory, 4, AT));
	rkfd_mirror_free(m);
	rkfd_space_queue_free(q);
	rkfd_space_close(space);
}

CASE(mirror_child, "a child of fork mirrors nothing in its parent's address space: EXDEV")
{
	char *memory = pages(4);
	struct rkfd_mirror_options good = range(memory, 4, AT);
	struct rkfd_mirror *m;
	struct engine e;
	int status;
	pid_t child;

	open_engine(&e);
	start_engine(&e);
	fill(memory, 4, 0x10);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		const struct rkfd_space *space = e.space;

		fill(memory, 4, 0xbad0);
		REFUSED(EXDEV, "MIRROR_CREATE", (void)o);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	m = need_mirror(e.space, good);
	gpu_sees(&e, AT, 4, 0x10);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

CASE(mirror_sizes, "structures of mirrors: callers of an older and of a newer header than the library")
{
	struct {
		struct rkfd_mirror_options now;
		uint32_t later[2];
	} newer = { .later = { 0 } };
	struct {
		struct rkfd_mirror_info now;
		uint32_t later[2];
	} told;
	struct rkfd_space *space = need_space();
	char *memory = pages(4);
	struct rkfd_mirror *m;

	/* Of the first version: nobody has less. */
	CHECK_OP(sizeof(newer.now), >=, 40);
	CHECK_OP(sizeof(told.now), >=, 80);
	newer.now = range(memory, 4, AT);
	newer.now.size = sizeof(newer);
	OK(rkfd_mirror_new(space, &newer.now, &m));
	rkfd_mirror_free(m);
	newer.later[1] = 7;
	FAILS(rkfd_mirror_new(space, &newer.now, &m), E2BIG, "does not know");
	CHECK(!m);
	newer.now.size = 36;
	FAILS(rkfd_mirror_new(space, &newer.now, &m), EINVAL, "sizeof(struct rkfd_mirror_options)");
	newer.now.size = 40;
	OK(rkfd_mirror_new(space, &newer.now, &m));
	memset(&told, 0xa5, sizeof(told));
	told.now.size = sizeof(told);
	OK(rkfd_mirror_describe(m, &told.now));
	CHECK_EQ(told.now.size, sizeof(told));
	CHECK_EQ(told.now.address, AT);
	CHECK_EQ(told.now.faults, 0);
	CHECK_EQ(told.later[0], 0);
	CHECK_EQ(told.later[1], 0);
	memset(&told, 0xa5, sizeof(told));
	told.now.size = 80;
	OK(rkfd_mirror_describe(m, &told.now));
	CHECK_EQ(told.now.size, 80);
	CHECK_EQ(told.now.faults, 0);
	CHECK_EQ(*(uint32_t *)((char *)&told + 80), 0xa5a5a5a5);
	memset(&told, 0xa5, sizeof(told));
	told.now.size = 76;
	FAILS(rkfd_mirror_describe(m, &told.now), EINVAL, "sizeof(struct rkfd_mirror_info)");
	CHECK_EQ(told.now.rights, 0xa5a5a5a5);
	rkfd_mirror_free(m);
	rkfd_space_close(space);
}
