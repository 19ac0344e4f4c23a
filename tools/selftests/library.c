// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C, by its header alone: GPUs, memory, and that every kind of error has its errno and its text.
 */
#include "library.h"

#include <stdio.h>

CASE(info, "a GPU describes itself")
{
	struct rkfd_gpu_info info;
	uint64_t available;

	memset(&info, 0xa5, sizeof(info));
	info.size = sizeof(info);
	need_vm();
	OK(rkfd_gpu_describe(gpu, &info));
	CHECK_EQ(info.size, sizeof(info));
	CHECK_NE(info.gpu_id, 0);
	CHECK_EQ(info.gfx_target_version / 10000, 9);
	CHECK_EQ(info.vendor, 0x1002);
	CHECK_NE(info.device, 0);
	CHECK_EQ(info.kfd_major, 1);
	CHECK_NE(info.simd_count, 0);
	CHECK_NE(info.simd_per_cu, 0);
	CHECK_NE(info.sdma_engines, 0);
	CHECK_OP(info.va_base, <, info.va_limit);
	CHECK_EQ(strnlen(info.pci, sizeof(info.pci)), strlen("0000:00:00.0"));
	CHECK_OP(strnlen(info.name, sizeof(info.name)), <, sizeof(info.name));
	OK(rkfd_vm_available(vm, &available));
	CHECK_NE(available, 0);
	CHECK_OP(available, <=, info.vram_bytes);
}

CASE(vm_again, "the address space is one, however often it is opened")
{
	struct rkfd_buffer *before, *after;
	struct rkfd_vm *second;

	need_vm();
	before = memory(RKFD_BUFFER_GTT, PAGE);
	OK(rkfd_vm_open(gpu, &second));
	rkfd_vm_close(vm);
	rkfd_vm_close(second);
	rkfd_gpu_close(gpu);
	need_vm();
	after = memory(RKFD_BUFFER_GTT, PAGE);
	CHECK_NE(rkfd_buffer_gpu(before), rkfd_buffer_gpu(after));
	rkfd_buffer_free(before);
	rkfd_buffer_free(after);
}

CASE(wrapped, "the program's own memory: the GPU reads and writes it, and it stays when the buffer goes")
{
	volatile uint32_t *p;
	struct rkfd_buffer *b, *out;
	struct rkfd_queue *q, *sdma;
	struct rkfd_event *e;
	char *at;

	need_vm();
	at = pages(3);
	p = (volatile uint32_t *)(at + PAGE);
	q = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	e = event();
	out = memory(RKFD_BUFFER_GTT, PAGE);
	p[0] = 17;
	OK(rkfd_buffer_wrap(vm, at + PAGE, 2 * PAGE, &b));
	CHECK(rkfd_buffer_cpu(b) == at + PAGE);
	CHECK_EQ(rkfd_buffer_gpu(b), (uintptr_t)at + PAGE);
	CHECK_EQ(rkfd_buffer_size(b), 2 * PAGE);
	write_by(q, e, rkfd_buffer_gpu(b) + 2 * PAGE - 4, 18);
	CHECK_EQ(p[2 * PAGE / 4 - 1], 18);
	OK(rkfd_sdma_copy(sdma, rkfd_buffer_gpu(out), rkfd_buffer_gpu(b), 4));
	OK(rkfd_sdma_raise(sdma, e));
	OK(rkfd_queue_commit(sdma));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(out, 0), 17);
	rkfd_buffer_free(b);
	CHECK_EQ(p[2 * PAGE / 4 - 1], 18);
	p[1] = 19;
	/* It can be had again. */
	OK(rkfd_buffer_wrap(vm, at, 3 * PAGE, &b));
	write_by(q, e, rkfd_buffer_gpu(b) + PAGE, 20);
	CHECK_EQ(p[0], 20);
	CHECK_EQ(p[1], 19);
	rkfd_buffer_free(b);
	CHECK_EQ(munmap(at, 3 * PAGE), 0);
}

CASE(wrapped_badly, "memory that is not whole pages, or not there, is not wrapped")
{
	struct rkfd_buffer *b = (void *)1;
	char *at;

	need_vm();
	at = pages(2);
	FAILS(rkfd_buffer_wrap(vm, NULL, PAGE, &b), EINVAL, "whole pages");
	CHECK(!b);
	FAILS(rkfd_buffer_wrap(vm, at + 64, PAGE, &b), EINVAL, "whole pages");
	FAILS(rkfd_buffer_wrap(vm, at, PAGE + 64, &b), EINVAL, "whole pages");
	FAILS(rkfd_buffer_wrap(vm, at, 0, &b), EINVAL, "whole pages");
	FAILS(rkfd_buffer_wrap(vm, at, -PAGE, &b), EINVAL, "whole pages");
	FAILS(rkfd_buffer_wrap(NULL, at, PAGE, &b), EINVAL, "vm is NULL");
	CHECK_EQ(munmap(at + PAGE, PAGE), 0);
	FAILS(rkfd_buffer_wrap(vm, at + PAGE, PAGE, &b), EFAULT, "ALLOC_MEMORY_OF_GPU");
	CHECK(!b);
	OK(rkfd_buffer_wrap(vm, at, PAGE, &b));
}

CASE(shared, "two GPUs write one buffer, of the kernel's memory and of the program's")
{
	struct rkfd_vm *second = need_second();
	struct rkfd_queue *one = queue(RKFD_QUEUE_PM4), *two;
	struct rkfd_event *e = event(), *other;

	OK(rkfd_queue_new(second, RKFD_QUEUE_PM4, NULL, &two));
	OK(rkfd_event_new(second, 1, &other));
	for (unsigned int i = 0; i < 2; i++) {
		struct rkfd_buffer *b;

		if (i == 0)
			b = memory(RKFD_BUFFER_GTT, PAGE);
		else
			OK(rkfd_buffer_wrap(vm, pages(1), PAGE, &b));
		OK(rkfd_buffer_share(b, second));
		/* A second time, and with its own GPU, is no more. */
		OK(rkfd_buffer_share(b, second));
		OK(rkfd_buffer_share(b, vm));
		write_by(one, e, rkfd_buffer_gpu(b), 0x101);
		write_by(two, other, rkfd_buffer_gpu(b) + 64, 0x202);
		CHECK_EQ(dword(b, 0), 0x101);
		CHECK_EQ(dword(b, 16), 0x202);
		FAILS(rkfd_buffer_share(NULL, second), EINVAL, "buffer is NULL");
		FAILS(rkfd_buffer_share(b, NULL), EINVAL, "vm is NULL");
		rkfd_buffer_free(b);
	}
}

CASE(shared_signals, "two GPUs order their work by signals alone: each waits for what the other completes")
{
	struct rkfd_vm *second = need_second();
	struct rkfd_queue *one = queue(RKFD_QUEUE_AQL), *two;
	struct rkfd_signals *s = signals(3);
	uint64_t at[3];

	OK(rkfd_queue_new(second, RKFD_QUEUE_AQL, NULL, &two));
	OK(rkfd_signals_share(s, second));
	/* A second time, and with its own GPU, is no more. */
	OK(rkfd_signals_share(s, second));
	OK(rkfd_signals_share(s, vm));
	for (unsigned int i = 0; i < 3; i++)
		at[i] = rkfd_signals_address(s, i);
	/* Each in a queue before what it waits for can come. */
	OK(rkfd_aql_barrier(one, &at[1], 1, at[2], NULL));
	OK(rkfd_queue_commit(one));
	OK(rkfd_aql_barrier(two, &at[0], 1, at[1], NULL));
	OK(rkfd_queue_commit(two));
	FAILS(rkfd_signals_wait_below(s, 2, 1, SHORT_MS, NULL), ETIMEDOUT, "a signal");
	CHECK_EQ(signal_value(s, 1), 1);
	OK(rkfd_signals_store(s, 0, 0));
	OK(rkfd_signals_wait_below(s, 2, 1, PATIENCE_MS, NULL));
	CHECK_EQ(signal_value(s, 1), 0);
	CHECK_EQ(signal_value(s, 2), 0);
	FAILS(rkfd_signals_share(NULL, second), EINVAL, "signals is NULL");
	FAILS(rkfd_signals_share(s, NULL), EINVAL, "vm is NULL");
	OK(rkfd_queue_free(one));
	OK(rkfd_queue_free(two));
	rkfd_signals_free(s);
}

CASE(shared_freed, "a shared buffer that is freed leaves no GPU's address space taken")
{
	struct rkfd_vm *second = need_second();
	char *at = pages(1);

	for (unsigned int i = 0; i < 4; i++) {
		struct rkfd_buffer *b;

		/* One address each time: a mapping left on either GPU would refuse the next. */
		OK(rkfd_buffer_wrap(i % 2 ? second : vm, at, PAGE, &b));
		OK(rkfd_buffer_share(b, i % 2 ? vm : second));
		rkfd_buffer_free(b);
	}
}

CASE(null, "NULL is refused where a handle or a result belongs, and may be given back")
{
	struct rkfd_queue *q = (void *)1;
	struct rkfd_buffer *b = (void *)1;

	FAILS(rkfd_gpu_count(NULL), EINVAL, "count is NULL");
	FAILS(rkfd_gpu_open(0, NULL), EINVAL, "gpu is NULL");
	FAILS(rkfd_vm_open(NULL, &vm), EINVAL, "gpu is NULL");
	CHECK(!vm);
	FAILS(rkfd_buffer_new(NULL, RKFD_BUFFER_GTT, PAGE, &b), EINVAL, "vm is NULL");
	CHECK(!b);
	FAILS(rkfd_queue_new(NULL, RKFD_QUEUE_PM4, NULL, &q), EINVAL, "vm is NULL");
	CHECK(!q);
	FAILS(rkfd_queue_commit(NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_emit(NULL, NULL, 1), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_defaults(NULL), EINVAL, "rkfd_queue_options is NULL");
	FAILS(rkfd_queue_describe(NULL, NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_aql_reserve(NULL, 1, 0, NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_aql_publish(NULL, 0, 3), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_error(NULL, NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_error_wait(NULL, 0, NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_on_error(NULL, NULL, NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_vm_enable_runtime(NULL), EINVAL, "vm is NULL");
	FAILS(rkfd_buffer_create(NULL, NULL, &b), EINVAL, "vm is NULL");
	FAILS(rkfd_buffer_defaults(RKFD_BUFFER_GTT, 1, NULL), EINVAL, "rkfd_buffer_options is NULL");
	FAILS(rkfd_pm4_raise(NULL, NULL), EINVAL, "event is NULL");
	FAILS(rkfd_event_wait(NULL, 1), EINVAL, "event is NULL");
	FAILS(rkfd_signals_load(NULL, 0, NULL), EINVAL, "signals is NULL");
	CHECK(!rkfd_buffer_cpu(NULL));
	CHECK_EQ(rkfd_buffer_gpu(NULL), 0);
	CHECK_EQ(rkfd_signals_address(NULL, 0), 0);
	rkfd_gpu_close(NULL);
	rkfd_vm_close(NULL);
	rkfd_buffer_free(NULL);
	OK(rkfd_queue_free(NULL));
	rkfd_event_free(NULL);
	rkfd_signals_free(NULL);
}

CASE(bad, "what cannot be is refused, with a text, and changes nothing")
{
	struct rkfd_queue_options options = ordinary();
	struct rkfd_queue *pm4, *sdma, *aql, *q;
	struct rkfd_queue_info info;
	struct rkfd_signals *s;
	struct rkfd_buffer *b;
	uint32_t count, value = 0;
	uint64_t odd[1] = { 8 }, at;
	int64_t seen;

	need_vm();
	OK(rkfd_gpu_count(&count));
	{
		struct rkfd_gpu *none = (void *)1;

		FAILS(rkfd_gpu_open(count, &none), ENODEV, "No GPU");
		CHECK(!none);
	}
	FAILS(rkfd_buffer_new(vm, 6, PAGE, &b), EINVAL, "No kind of buffer: 6");
	FAILS(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 0, &b), EINVAL, "empty");
	FAILS(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, UINT64_MAX, &b), EINVAL, "beyond the address space");
	CHECK_NE(rkfd_buffer_new(vm, RKFD_BUFFER_VRAM, 1ul << 46, &b), 0);
	CHECK(!b);
	FAILS(rkfd_queue_new(vm, 3, NULL, &q), EINVAL, "No kind of queue: 3");
	options.ring_bytes = 5000;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "power of two");
	options.ring_bytes = 1ul << 32;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "beyond 4 GiB");
	options = ordinary();
	options.percentage = 101;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "CREATE_QUEUE");
	options = ordinary();
	options.engine = 0;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &q), EINVAL, "engine");
	CHECK(!q);

	b = memory(RKFD_BUFFER_GTT, PAGE);
	pm4 = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	aql = queue(RKFD_QUEUE_AQL);
	FAILS(rkfd_queue_reserve(pm4, 1024, SHORT_MS), EINVAL, "never has room");
	FAILS(rkfd_queue_reserve(aql, UINT32_MAX, SHORT_MS), EINVAL, "64 at most");
	FAILS(rkfd_queue_emit(pm4, &value, 0), EINVAL, "0 elements");
	FAILS(rkfd_queue_emit(pm4, NULL, 1), EINVAL, "dwords is NULL");
	FAILS(rkfd_queue_emit(pm4, &value, UINT32_MAX), EINVAL, "elements");
	FAILS(rkfd_queue_emit(aql, &value, 1), EINVAL, "64 bytes");
	FAILS(rkfd_aql_emit(pm4, (uint32_t[16]){ 0 }, 0, NULL), EINVAL, "AQL");
	FAILS(rkfd_sdma_copy(pm4, rkfd_buffer_gpu(b), rkfd_buffer_gpu(b), 4), EINVAL,
	      "A packet for an SDMA queue on a PM4 queue");
	FAILS(rkfd_pm4_acquire(sdma), EINVAL, "A packet for a PM4 queue on an SDMA queue");
	FAILS(rkfd_pm4_write(pm4, rkfd_buffer_gpu(b) + 2, &value, 1), EINVAL, "multiple of 4");
	FAILS(rkfd_pm4_write(pm4, 1ul << 48, &value, 1), EINVAL, "48 bits");
	FAILS(rkfd_sdma_copy(sdma, 0, 0, 0), EINVAL, "0 bytes");
	FAILS(rkfd_sdma_copy(sdma, 0, 0, UINT64_MAX), EINVAL, "more packets than the ring holds");
	FAILS(rkfd_sdma_copy(sdma, 0, UINT64_MAX, 4), EINVAL, "beyond the address space");
	FAILS(rkfd_sdma_fill(sdma, rkfd_buffer_gpu(b), 0, 6), EINVAL, "multiple of 4");
	FAILS(rkfd_aql_barrier(aql, odd, 1, 0, NULL), EINVAL, "multiple of 64");
	FAILS(rkfd_aql_barrier(aql, odd, 6, 0, NULL), EINVAL, "6 dependencies");
	FAILS(rkfd_aql_barrier(aql, NULL, 1, 0, NULL), EINVAL, "dependencies is NULL");
	FAILS(rkfd_aql_barrier(pm4, NULL, 0, 0, NULL), EINVAL, "A packet for an AQL queue on a PM4 queue");
	FAILS(rkfd_aql_emit(aql, (uint32_t[16]){ 0 }, 1, NULL), EINVAL, "type INVALID");
	FAILS(rkfd_aql_emit(aql, NULL, 3, NULL), EINVAL, "packet is NULL");
	FAILS(rkfd_aql_reserve(sdma, 1, SHORT_MS, &at), EINVAL, "A packet for an AQL queue on an SDMA queue");
	FAILS(rkfd_aql_reserve(aql, 0, SHORT_MS, &at), EINVAL, "No packets");
	FAILS(rkfd_aql_reserve(aql, 65, SHORT_MS, &at), EINVAL, "more than the ring has");
	FAILS(rkfd_aql_reserve(aql, 1, SHORT_MS, NULL), EINVAL, "first is NULL");
	FAILS(rkfd_aql_publish(aql, 0, 3), EINVAL, "Not the index of a packet that is open");
	CHECK(!rkfd_aql_place(aql, 0));
	CHECK(!rkfd_aql_place(pm4, 0));
	CHECK(!rkfd_aql_place(NULL, 0));
	FAILS(rkfd_queue_update(pm4, 101, 7), EINVAL, "UPDATE_QUEUE");
	FAILS(rkfd_signals_new(vm, 0, &s), EINVAL, "No signals");
	OK(rkfd_signals_new(vm, 2, &s));
	FAILS(rkfd_signals_load(s, 2, &seen), ERANGE, "does not fit");
	CHECK_EQ(rkfd_signals_address(s, 2), 0);

	for (unsigned int i = 0; i < 3; i++) {
		info = info_of((struct rkfd_queue *[]){ pm4, sdma, aql }[i]);
		CHECK_EQ(info.written, 0);
		CHECK_EQ(info.read, 0);
	}
}

CASE(grown, "structures of older and newer programs: what they lack is 0, what is not known is refused or 0")
{
	struct {
		struct rkfd_queue_options now;
		uint32_t later[2];
	} newer = { .now.size = sizeof(newer) };
	struct {
		struct rkfd_queue_info now;
		uint32_t later[2];
	} told;
	struct rkfd_queue_info before;
	struct rkfd_queue *q;

	need_vm();
	newer.later[1] = 7;
	OK(rkfd_queue_defaults(&newer.now));
	CHECK_EQ(newer.now.size, sizeof(newer));
	CHECK_EQ(newer.later[1], 0);
	OK(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &newer.now, &q));
	OK(rkfd_queue_free(q));
	newer.later[1] = 7;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &newer.now, &q), E2BIG, "does not know");
	CHECK(!q);
	newer.now.size = 0;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &newer.now, &q), EINVAL, "sizeof(struct rkfd_queue_options)");
	q = queue(RKFD_QUEUE_PM4);
	memset(&told, 0xa5, sizeof(told));
	told.now.size = sizeof(told);
	OK(rkfd_queue_describe(q, &told.now));
	CHECK_EQ(told.later[1], 0);
	CHECK_EQ(told.now.ring_bytes, 4096);
	memset(&before, 0xa5, sizeof(before));
	before.size = 4;
	FAILS(rkfd_queue_describe(q, &before), EINVAL, "sizeof(struct rkfd_queue_info)");
	CHECK_EQ(before.room, 0xa5a5a5a5a5a5a5a5);
}

CASE(version, "the library is of the header's version")
{
	char text[16];

	CHECK_EQ(rkfd_version(), RKFD_VERSION_MAJOR << 16 | RKFD_VERSION_MINOR);
	snprintf(text, sizeof(text), "%u.%u.", RKFD_VERSION_MAJOR, RKFD_VERSION_MINOR);
	CHECK_EQ(strncmp(rkfd_version_text(), text, strlen(text)), 0);
}

int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
