// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: what kernels and their waves stop a queue by.
 */
#include "library_code.h"
#include "library_failures.h"

#include <linux/kfd_ioctl.h>

/* Where nothing is mapped, and an address that has no place in any aperture. */
#define UNMAPPED 0x0d0000000000ul
#define NOWHERE (1ul << 62)

/* A kernel of kernels/fails.S that stops its queue. */
struct failure {
	const char *kernel;
	/* In its one work-group. */
	uint32_t items;
	uint64_t argument;
	/* What the inactive signal says, if anything, and the reason that it means. */
	uint64_t code;
	uint32_t reason;
	/* What the driver says, and the reason that it means. */
	uint32_t exception, reason_of_exception;
};

static const struct failure failures[] = {
	{ "illegal_instruction", 64, 0, 0x40000000, RKFD_REASON_ILLEGAL_INSTRUCTION, EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION,
	  RKFD_REASON_ILLEGAL_INSTRUCTION },
	{ "trap_other", 64, 0, 0x80000000, RKFD_REASON_WAVE_TRAP, EC_QUEUE_WAVE_TRAP, RKFD_REASON_WAVE_TRAP },
	/* That it was this trap is known to the driver alone. */
	{ "trap_abort", 64, 0, 0x80000000, RKFD_REASON_WAVE_TRAP, EC_QUEUE_WAVE_ABORT, RKFD_REASON_WAVE_ABORT },
	{ "load_from", 64, NOWHERE, 0x20000000, RKFD_REASON_APERTURE_VIOLATION, EC_QUEUE_WAVE_APERTURE_VIOLATION,
	  RKFD_REASON_APERTURE_VIOLATION },
};

static uint64_t launch(struct rkfd_queue *q, const char *name, uint32_t items, uint64_t argument,
		       struct rkfd_buffer *kernarg, struct rkfd_signals *done)
{
	struct rkfd_dispatch dispatch = {
		.size = sizeof(dispatch),
		.grid = { items },
		.group = { items },
		.raw = &argument,
		.raw_bytes = sizeof(argument),
		.kernarg = rkfd_buffer_cpu(kernarg),
		.completion = rkfd_signals_address(done, 0),
	};
	struct rkfd_kernel *k = kernel(name);
	uint64_t index;

	OK(rkfd_signals_store(done, 0, 1));
	OK(rkfd_kernel_launch(q, k, &dispatch, &index));
	OK(rkfd_queue_commit(q));
	rkfd_kernel_free(k);
	return index;
}

/* Waits, asleep, from before the queue stops. */
struct sleeper {
	pthread_t thread;
	struct rkfd_queue *q;
	struct rkfd_queue_error_info first;
};

static void *sleep_until_stopped(void *data)
{
	struct sleeper *s = data;

	s->first = awaited(s->q);
	return NULL;
}

/* A new queue stops at this kernel, behind a packet that it runs, and everyone learns why. */
static void fail(const struct failure *f, bool runtime)
{
	const uint64_t exceptions = runtime ? KFD_EC_MASK(f->exception) : 0;
	const uint64_t reasons = (f->code ? 1ull << f->reason : 0) | (runtime ? 1ull << f->reason_of_exception : 0);
	struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER, .event = event() };
	struct rkfd_buffer *kernarg = memory(RKFD_BUFFER_GTT, PAGE);
	struct sleeper sleeper = { .q = queue(RKFD_QUEUE_AQL) };
	struct rkfd_queue_error_info e, asked = { .size = sizeof(asked) };
	struct rkfd_signals *done = signals(1);
	struct rkfd_queue *q = sleeper.q;
	uint64_t first;

	OK(rkfd_queue_on_error(q, tell, &told));
	CHECK_EQ(pthread_create(&sleeper.thread, NULL, sleep_until_stopped, &sleeper), 0);
	OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
	CHECK_EQ(launch(q, f->kernel, f->items, f->argument, kernarg, done), 1);
	/* The signal and the driver speak one after the other, in any order: then there is another call. */
	do
		e = last_of(&told, 0);
	while ((f->code && !e.code) || (runtime && !e.exceptions));
	CHECK_EQ(e.code, f->code);
	CHECK_EQ(e.exceptions, exceptions);
	CHECK_EQ(e.reasons, reasons);
	CHECK_EQ(e.reason, __builtin_ctzll(reasons));
	CHECK_EQ(e.packet, 1);
	CHECK_EQ(pthread_join(sleeper.thread, NULL), 0);
	CHECK_NE(sleeper.first.reasons, 0);
	CHECK_EQ(sleeper.first.reasons & ~reasons, 0);
	CHECK_EQ(sleeper.first.packet, 1);
	OK(rkfd_queue_error(q, &asked));
	CHECK_EQ(memcmp(&asked, &e, sizeof(e)), 0);
	asked = awaited(q);
	CHECK_EQ(memcmp(&asked, &e, sizeof(e)), 0);
	FAILS(rkfd_queue_wait(q, PATIENCE_MS), EIO, rkfd_reason_text(e.reason));
	/* The ring is full but for what was before the kernel: of two places, the second is the kernel's. */
	for (unsigned int i = 2; i < 64; i++)
		OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
	OK(rkfd_queue_commit(q));
	FAILS(rkfd_aql_reserve(q, 2, PATIENCE_MS, &first), EIO, "stopped at packet 1");
	CHECK_EQ(signal_value(done, 0), 1);
	OK(rkfd_queue_free(q));
	rkfd_signals_free(done);
	rkfd_buffer_free(kernarg);
}

/*
 * The library has no trap handler. The model says what a runtime's would say; where waves stop on a card without one, nobody
 * does.
 */
static void need_words_of_waves(void)
{
	struct rkfd_gpu_info info = { .size = sizeof(info) };

	OK(rkfd_gpu_describe(gpu, &info));
	if (!info.is_model)
		SKIP("no trap handler tells of waves");
}

static void fail_all(bool runtime)
{
	struct rkfd_signals *done;
	struct rkfd_buffer *kernarg;
	struct rkfd_queue *other;

	need_code("fails.co");
	need_words_of_waves();
	if (runtime)
		OK(rkfd_vm_enable_runtime(vm));
	done = signals(1);
	kernarg = memory(RKFD_BUFFER_GTT, PAGE);
	other = queue(RKFD_QUEUE_AQL);
	for (unsigned int i = 0; i < sizeof(failures) / sizeof(*failures); i++) {
		fail(&failures[i], runtime);
		/* The queue beside it does not notice. */
		launch(other, "nothing", 64, 0, kernarg, done);
		OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
		OK(rkfd_queue_wait(other, PATIENCE_MS));
	}
}

CASE(waves, "an illegal instruction, traps, an address outside of all apertures: callback and waiters learn, by the inactive signal")
{
	fail_all(false);
}

CASE(waves_runtime, "an illegal instruction, traps, an address outside of all apertures, with the runtime: the driver tells as well, and which trap it was")
{
	fail_all(true);
}

CASE(waves_memory, "an access to where nothing is mapped: with the runtime enabled, callback and waiters learn, from the driver alone")
{
	static const struct failure f = { "load_from", 64, UNMAPPED, 0, 0, EC_QUEUE_WAVE_MEMORY_VIOLATION,
					  RKFD_REASON_MEMORY_VIOLATION };
	struct rkfd_exception_info info = { .size = sizeof(info) };
	struct rkfd_event *fault;

	need_code("fails.co");
	need_words_of_waves();
	OK(rkfd_vm_enable_runtime(vm));
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
	fail(&f, true);
	/* As without the runtime, the address is in the exception. */
	OK(rkfd_exception_wait(fault, PATIENCE_MS, &info));
	CHECK_EQ(info.address, UNMAPPED);
	CHECK_EQ(info.not_present, 1);
}

/* Of the packet processor, which needs no handler to tell. */
static void want_registers(bool runtime)
{
	static const struct failure f = { "many_registers", 1024, 0, 0x80, RKFD_REASON_REGISTERS,
					  EC_QUEUE_PACKET_DISPATCH_REGISTER_INVALID, RKFD_REASON_REGISTERS };

	need_code("fails.co");
	if (runtime)
		OK(rkfd_vm_enable_runtime(vm));
	fail(&f, runtime);
}

CASE(registers, "a work-group for which no compute unit has the registers: callback and waiters learn, by the inactive signal")
{
	want_registers(false);
}

CASE(registers_runtime, "a work-group for which no compute unit has the registers, with the runtime: the driver tells as well")
{
	want_registers(true);
}

/* The kernel that does nothing, by a packet of the program's own. */
static uint64_t emit_nothing(struct rkfd_queue *q, uint32_t private_bytes, struct rkfd_signals *done)
{
	enum { DISPATCH = 2 | 1 << 8 | 2 << 9 | 2 << 11 };
	uint32_t packet[16] = { 1 << 16, 64 | 1 << 16, 1, 64, 1, 1, private_bytes };
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	const uint64_t signal = rkfd_signals_address(done, 0);
	struct rkfd_kernel *k = kernel("nothing");
	uint64_t index;

	OK(rkfd_kernel_describe(k, &info));
	memcpy(packet + 8, &info.object, 8);
	memcpy(packet + 14, &signal, 8);
	OK(rkfd_signals_store(done, 0, 1));
	OK(rkfd_aql_emit(q, packet, DISPATCH, &index));
	OK(rkfd_queue_commit(q));
	rkfd_kernel_free(k);
	return index;
}

/* The runtime gives more, so that nobody else is told. */
static void want_private_memory(bool runtime)
{
	struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct rkfd_queue_error_info e, asked;
	struct rkfd_signals *done;
	struct rkfd_queue *q;
	uint64_t index;

	need_code("fails.co");
	if (runtime)
		OK(rkfd_vm_enable_runtime(vm));
	told.event = event();
	done = signals(1);
	q = queue(RKFD_QUEUE_AQL);
	OK(rkfd_queue_on_error(q, tell, &told));
	OK(rkfd_queue_provide_scratch(q, 1024));
	emit_nothing(q, 1024, done);
	OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
	CHECK_EQ(told.times, 0);
	index = emit_nothing(q, 1040, done);
	e = last_of(&told, 1);
	CHECK_EQ(e.reason, RKFD_REASON_SCRATCH);
	CHECK_EQ(e.reasons, 1ull << RKFD_REASON_SCRATCH);
	CHECK_EQ(e.code, 0x1);
	CHECK_EQ(e.exceptions, 0);
	CHECK_EQ(e.packet, index);
	asked = awaited(q);
	CHECK_EQ(memcmp(&asked, &e, sizeof(e)), 0);
	FAILS(rkfd_queue_wait(q, PATIENCE_MS), EIO, rkfd_reason_text(e.reason));
	/* It is too late for that. */
	FAILS(rkfd_queue_provide_scratch(q, 2048), EIO, rkfd_reason_text(e.reason));
	CHECK_EQ(signal_value(done, 0), 1);
	OK(rkfd_queue_free(q));
	CHECK_EQ(told.times, 1);
}

CASE(little_scratch, "a dispatch with as much private memory as the queue has runs; with more: callback and waiters learn, by the inactive signal")
{
	want_private_memory(false);
}

CASE(little_scratch_runtime, "a dispatch with more private memory than the queue has, with the runtime: the inactive signal alone tells")
{
	want_private_memory(true);
}
