// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: every type of memory, at any address and at a chosen one.
 */
#include "library.h"

#include "model.h"

static const uint32_t kinds[] = {
	RKFD_BUFFER_VRAM, RKFD_BUFFER_VRAM_PRIVATE, RKFD_BUFFER_GTT, RKFD_BUFFER_USERPTR
};

static struct rkfd_buffer_options of_kind(uint32_t kind, uint64_t bytes)
{
	struct rkfd_buffer_options o = { .size = sizeof(o) };

	OK(rkfd_buffer_defaults(kind, bytes, &o));
	CHECK_EQ(o.size, sizeof(o));
	CHECK_EQ(o.kind, kind);
	CHECK_EQ(o.bytes, bytes);
	return o;
}

static struct rkfd_buffer *create(const struct rkfd_buffer_options *o)
{
	struct rkfd_buffer *b;

	OK(rkfd_buffer_create(vm, o, &b));
	CHECK(b);
	return b;
}

static void copy(struct rkfd_queue *q, struct rkfd_event *e, uint64_t to, uint64_t from, uint64_t bytes)
{
	OK(rkfd_sdma_copy(q, to, from, bytes));
	OK(rkfd_sdma_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
}

CASE(every_type, "memory of each kind, coherence and use: the GPU writes it, and reads it back")
{
	static const uint32_t uses[] = { 0, RKFD_BUFFER_UNCACHED, RKFD_BUFFER_NO_EXECUTE,
					 RKFD_BUFFER_UNCACHED | RKFD_BUFFER_NO_EXECUTE };
	struct rkfd_buffer *out;
	struct rkfd_queue *q, *sdma;
	struct rkfd_event *e;
	uint32_t value = 1;

	need_vm();
	q = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	e = event();
	out = memory(RKFD_BUFFER_GTT, PAGE);
	for (unsigned int k = 0; k < 4; k++)
		for (uint32_t c = RKFD_COHERENCE_PACKETS; c <= RKFD_COHERENCE_EXTENDED; c++)
			for (unsigned int u = 0; u < 4; u++) {
				struct rkfd_buffer_options o = of_kind(kinds[k], 3 * PAGE - 1);
				struct rkfd_buffer *b;

				o.coherence = c;
				o.flags = uses[u];
				b = create(&o);
				CHECK_EQ(rkfd_buffer_size(b), 3 * PAGE);
				CHECK_EQ(!rkfd_buffer_cpu(b), kinds[k] == RKFD_BUFFER_VRAM_PRIVATE);
				write_by(q, e, rkfd_buffer_gpu(b) + 2 * PAGE + 8, ++value);
				if (rkfd_buffer_cpu(b))
					CHECK_EQ(dword(b, 2 * PAGE / 4 + 2), value);
				copy(sdma, e, rkfd_buffer_gpu(out), rkfd_buffer_gpu(b) + 2 * PAGE + 8, 4);
				CHECK_EQ(dword(out, 0), value);
				rkfd_buffer_free(b);
			}
}

CASE(contiguous, "VRAM in one piece; of other memory that is no question")
{
	struct rkfd_buffer_options o;
	struct rkfd_buffer *b;
	struct rkfd_event *e;
	struct rkfd_queue *q;

	need_vm();
	e = event();
	q = queue(RKFD_QUEUE_PM4);
	o = of_kind(RKFD_BUFFER_VRAM, 4ul << 20);
	o.flags |= RKFD_BUFFER_CONTIGUOUS;
	b = create(&o);
	write_by(q, e, rkfd_buffer_gpu(b) + (4ul << 20) - 4, 3);
	CHECK_EQ(dword(b, (4 << 20) / 4 - 1), 3);
	o.kind = RKFD_BUFFER_GTT;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "Only VRAM");
	CHECK(!b);
}

CASE(chosen_address, "memory of each kind at an address of the program's choice, once")
{
	struct rkfd_buffer *b, *second = (void *)1;
	uint64_t at = 0x0d0000000000;
	struct rkfd_gpu_info info = { .size = sizeof(info) };
	struct rkfd_queue *q;
	struct rkfd_event *e;

	need_vm();
	OK(rkfd_gpu_describe(gpu, &info));
	e = event();
	q = queue(RKFD_QUEUE_PM4);
	for (unsigned int k = 0; k < 4; k++)
		for (unsigned int twice = 0; twice < 2; twice++) {
			struct rkfd_buffer_options o = of_kind(kinds[k], 2 * PAGE);

			o.address = at;
			b = create(&o);
			CHECK_EQ(rkfd_buffer_gpu(b), at);
			if (rkfd_buffer_cpu(b))
				CHECK_EQ((uintptr_t)rkfd_buffer_cpu(b), at);
			write_by(q, e, at + PAGE, 5 + k);
			if (rkfd_buffer_cpu(b))
				CHECK_EQ(dword(b, PAGE / 4), 5 + k);
			o.address = at + PAGE;
			FAILS(rkfd_buffer_create(vm, &o, &second), EEXIST, "mmap");
			CHECK(!second);
			/* The other goes on as it was. */
			write_by(q, e, at + PAGE, 50 + k);
			if (rkfd_buffer_cpu(b))
				CHECK_EQ(dword(b, PAGE / 4), 50 + k);
			rkfd_buffer_free(b);
		}
	{
		struct rkfd_buffer_options o = of_kind(RKFD_BUFFER_GTT, PAGE);

		o.address = at + 8;
		FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "whole pages");
		o.address = info.va_limit + 1;
		CHECK_NE(rkfd_buffer_create(vm, &o, &b), 0);
		CHECK(!b);
	}
}

CASE(read_only, "what the GPU may not write: it reads it; a write is an exception that says so")
{
	struct rkfd_exception_info info = { .size = sizeof(info) };
	struct rkfd_buffer_options o;
	struct rkfd_buffer *b, *out;
	struct rkfd_queue *q, *sdma;
	struct rkfd_event *e, *fault;
	uint32_t value = 1;

	need_vm();
	q = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	e = event();
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
	out = memory(RKFD_BUFFER_GTT, PAGE);
	o = of_kind(RKFD_BUFFER_GTT, PAGE);
	o.flags |= RKFD_BUFFER_READ_ONLY;
	b = create(&o);
	*(volatile uint32_t *)rkfd_buffer_cpu(b) = 1234;
	copy(sdma, e, rkfd_buffer_gpu(out), rkfd_buffer_gpu(b), 4);
	CHECK_EQ(dword(out, 0), 1234);
	OK(rkfd_pm4_write(q, rkfd_buffer_gpu(b), &value, 1));
	OK(rkfd_queue_commit(q));
	OK(rkfd_exception_wait(fault, PATIENCE_MS, &info));
	CHECK_EQ(info.address, rkfd_buffer_gpu(b));
	CHECK_EQ(info.read_only, 1);
	CHECK_EQ(info.not_present, 0);
	CHECK_EQ(dword(b, 0), 1234);
}

CASE(wrapped_read_only, "memory that the program may only read: for a GPU that may not write, either")
{
	struct rkfd_buffer_options o;
	struct rkfd_buffer *b, *out;
	struct rkfd_queue *sdma;
	uint32_t *at;

	need_vm();
	sdma = queue(RKFD_QUEUE_SDMA);
	out = memory(RKFD_BUFFER_GTT, PAGE);
	at = (uint32_t *)pages(1);
	*at = 4321;
	CHECK_EQ(mprotect(at, PAGE, PROT_READ), 0);
	o = of_kind(RKFD_BUFFER_USERPTR, PAGE);
	o.memory = at;
	FAILS(rkfd_buffer_create(vm, &o, &b), EPERM, "ALLOC_MEMORY_OF_GPU");
	CHECK(!b);
	o.flags |= RKFD_BUFFER_READ_ONLY;
	b = create(&o);
	CHECK(rkfd_buffer_cpu(b) == at);
	copy(sdma, event(), rkfd_buffer_gpu(out), rkfd_buffer_gpu(b), 4);
	CHECK_EQ(dword(out, 0), 4321);
	rkfd_buffer_free(b);
	CHECK_EQ(*at, 4321);
}

/*
 * Packets that the doorbell is missing of: a write of `value`, and the event. Returns the write pointer behind them. (A GPU
 * that connects the queue anew reads the pointer in memory, so that they may run nevertheless, but nobody can wait for it.)
 */
static uint64_t untold(struct rkfd_queue *q, struct rkfd_event *e, uint64_t to, uint32_t value)
{
	struct rkfd_queue_info info;

	OK(rkfd_pm4_write(q, to, &value, 1));
	OK(rkfd_pm4_raise(q, e));
	info = info_of(q);
	__atomic_store_n((uint64_t *)(uintptr_t)info.write_pointer, info.written, __ATOMIC_SEQ_CST);
	return info.written;
}

/* Queues are rung through a buffer of doorbells, which is at that address, or where the library has it be. */
static void ring_through(uint64_t address)
{
	struct rkfd_buffer_options o = of_kind(RKFD_BUFFER_DOORBELL, RKFD_DOORBELL_BYTES);
	struct rkfd_buffer *bells, *out, *second = (void *)1;
	struct rkfd_queue *q, *other;
	struct rkfd_event *e;
	uint64_t at, written;

	/* Before there is a queue, whose creation tells where they are. */
	o.address = address;
	bells = create(&o);
	CHECK_EQ(rkfd_buffer_size(bells), RKFD_DOORBELL_BYTES);
	CHECK_EQ((uintptr_t)rkfd_buffer_cpu(bells), rkfd_buffer_gpu(bells));
	if (address) {
		CHECK_EQ(rkfd_buffer_gpu(bells), address);
		FAILS(rkfd_buffer_create(vm, &o, &second), EEXIST, "mmap");
		CHECK(!second);
		o.address = address + PAGE;
		FAILS(rkfd_buffer_create(vm, &o, &second), EEXIST, "mmap");
		CHECK(!second);
	}
	q = queue(RKFD_QUEUE_PM4);
	other = queue(RKFD_QUEUE_PM4);
	out = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	at = info_of(q).doorbell_offset;
	CHECK_OP(at, <, RKFD_DOORBELL_BYTES);
	CHECK_NE(at, info_of(other).doorbell_offset);
	written = untold(q, e, rkfd_buffer_gpu(out), 1);
	*(volatile uint64_t *)((char *)rkfd_buffer_cpu(bells) + at) = written;
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(out, 0), 1);
	written = untold(q, e, rkfd_buffer_gpu(out), 2);
	OK(rkfd_pm4_release(other, rkfd_buffer_gpu(bells) + at, written));
	OK(rkfd_queue_commit(other));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(out, 0), 2);
	rkfd_buffer_free(bells);
	/* The library has a mapping of its own. */
	write_by(q, e, rkfd_buffer_gpu(out), 3);
	CHECK_EQ(dword(out, 0), 3);
	OK(rkfd_queue_free(q));
	OK(rkfd_queue_free(other));
}

CASE(doorbells, "the process's doorbells: through a buffer of them the CPU rings a queue, and so does another queue")
{
	need_vm();
	ring_through(0);
}

CASE(chosen_doorbells, "doorbells at an address of the program's choice, once at a time")
{
	need_vm();
	ring_through(0x0d0000000000);
	ring_through(0x0d0000000000);
}

/* How often the model's first GPU was asked to flush its host data path. */
static unsigned long flushes(void)
{
	static const char key[] = "\"hdp_flushes\":";
	const char *count = strstr(ask_model("{\"cmd\":\"stats\"}"), key);

	CHECK(count);
	return strtoul(count + strlen(key), NULL, 10);
}

CASE(register_page, "the page of registers: a store of the CPU flushes the host data path, and a queue stores there as well")
{
	struct rkfd_buffer_options o;
	struct rkfd_buffer *page;
	struct rkfd_queue *q;
	struct rkfd_event *e;

	need_vm();
	need_model();
	o = of_kind(RKFD_BUFFER_MMIO_REMAP, RKFD_MMIO_REMAP_BYTES);
	o.address = 0x0d0000000000;
	page = create(&o);
	CHECK_EQ(rkfd_buffer_gpu(page), o.address);
	CHECK_EQ((uintptr_t)rkfd_buffer_cpu(page), o.address);
	q = queue(RKFD_QUEUE_PM4);
	e = event();
	for (unsigned int i = 0; i < 3; i++) {
		unsigned long before = flushes();

		*(volatile uint32_t *)rkfd_buffer_cpu(page) = 1;
		CHECK_OP(flushes(), >, before);
		/* The model does not count those of its own; what is mapped elsewhere is a fault, and the event does not come. */
		write_by(q, e, rkfd_buffer_gpu(page), 1);
	}
	rkfd_buffer_free(page);
}

CASE(registers_as_they_are, "doorbells and the register page have one size, one use and one GPU")
{
	static const struct {
		uint32_t kind, bytes, other;
	} registers[] = {
		{ RKFD_BUFFER_DOORBELL, RKFD_DOORBELL_BYTES, PAGE },
		{ RKFD_BUFFER_MMIO_REMAP, RKFD_MMIO_REMAP_BYTES, 2 * PAGE },
	};
	struct rkfd_vm *second = need_second();
	struct rkfd_buffer *b;

	for (unsigned int i = 0; i < 2; i++) {
		const struct rkfd_buffer_options ordinary = of_kind(registers[i].kind, registers[i].bytes);
		struct rkfd_buffer_options o = ordinary;

		CHECK_EQ(o.flags, RKFD_BUFFER_NO_EXECUTE);
		CHECK_EQ(o.coherence, RKFD_COHERENCE_FINE);
		FAILS(rkfd_buffer_new(vm, registers[i].kind, registers[i].other, &b), EINVAL, "Doorbells are 8192 bytes");
		CHECK(!b);
		o.flags = 0;
		FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "and nothing else");
		o.flags = ordinary.flags | RKFD_BUFFER_READ_ONLY;
		FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "and nothing else");
		o = ordinary;
		o.coherence = RKFD_COHERENCE_EXTENDED;
		FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "and nothing else");
		o = ordinary;
		o.memory = pages(2);
		FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "of kind USERPTR");
		b = create(&ordinary);
		FAILS(rkfd_buffer_share(b, second), EINVAL, "MAP_MEMORY_TO_GPU");
		rkfd_buffer_free(b);
	}
}

CASE(no_such_memory, "options that cannot be are refused, and nothing is left behind")
{
	struct rkfd_buffer_options o;
	struct rkfd_buffer *b = (void *)1;

	need_vm();
	FAILS(rkfd_buffer_create(vm, NULL, &b), EINVAL, "rkfd_buffer_options is NULL");
	CHECK(!b);
	o = of_kind(RKFD_BUFFER_GTT, PAGE);
	FAILS(rkfd_buffer_create(vm, &o, NULL), EINVAL, "buffer is NULL");
	o.size = 8;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "sizeof(struct rkfd_buffer_options)");
	FAILS(rkfd_buffer_defaults(6, PAGE, &o), EINVAL, "sizeof(struct rkfd_buffer_options)");
	o.size = sizeof(o);
	FAILS(rkfd_buffer_defaults(6, PAGE, &o), EINVAL, "No kind of buffer: 6");
	o.kind = 6;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "No kind of buffer: 6");
	o = of_kind(RKFD_BUFFER_GTT, PAGE);
	o.flags |= 1u << 31;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "0x80000000");
	o = of_kind(RKFD_BUFFER_GTT, PAGE);
	o.coherence = 3;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "No coherence: 3");
	o = of_kind(RKFD_BUFFER_GTT, 0);
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "empty");
	o = of_kind(RKFD_BUFFER_GTT, PAGE);
	o.memory = pages(1);
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "of kind USERPTR");
	o = of_kind(RKFD_BUFFER_USERPTR, PAGE);
	o.memory = pages(1);
	o.address = (uintptr_t)o.memory;
	FAILS(rkfd_buffer_create(vm, &o, &b), EINVAL, "at its own address");
	CHECK(!b);
}
