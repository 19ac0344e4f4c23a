// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * CREATE and DESTROY_QUEUE: arguments, errors, ids, limits, life time.
 * (queue_ops.c changes live queues, queue_run.c executes packets.)
 */
#include "kfd.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
#define SDMA KFD_IOC_QUEUE_TYPE_SDMA
/* An address that no user may name. */
#define KERNEL_ADDRESS 0xffff800000001000ull

struct fixture {
	struct gpu gpu;
	struct queue q;
};

static void prepare(struct fixture *f, uint32_t type)
{
	need_vm(&f->gpu, 0);
	queue_prepare(&f->gpu, &f->q, type, 0x1000);
}

/* The spoilt call fails, and a repaired one then succeeds: the failure held nothing back. */
#define REFUSED(f, field, value, errno_)                                                   \
	do {                                                                               \
		__typeof__((f)->q.args.field) kept_ = (f)->q.args.field;                   \
		(f)->q.args.field = (value);                                               \
		CHECK_ERR(queue_create(&(f)->gpu, &(f)->q), errno_);                       \
		(f)->q.args.field = kept_;                                                 \
		CHECK_OK(queue_create(&(f)->gpu, &(f)->q));                                \
		drop_queue(&(f)->gpu, &(f)->q);                                            \
	} while (0)

static void check_created(const struct fixture *f)
{
	uint64_t offset = f->q.args.doorbell_offset;

	CHECK_EQ(f->q.args.queue_id, 0);
	CHECK_EQ(offset >> 62, 3);
	CHECK_EQ(offset >> 46 & 0xffff, f->gpu.id);
	CHECK_EQ(offset & 7, 0);
	CHECK_OP(offset & ((1ull << 46) - 1), <, DOORBELL_SLICE);
}

CASE(create_pm4, "CREATE_QUEUE: PM4, id 0, doorbell offset of the documented form")
{
	struct fixture f;
	uint64_t index;

	prepare(&f, COMPUTE);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	check_created(&f);
	/* A compute queue stays out of the indexes that route to SDMA and IH. */
	index = (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)) / 8;
	CHECK(index % 512 < 0x100 || index % 512 > 0x18f);
	drop_queue(&f.gpu, &f.q);
}

CASE(create_aql, "CREATE_QUEUE: AQL")
{
	struct fixture f;

	prepare(&f, AQL);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	check_created(&f);
	drop_queue(&f.gpu, &f.q);
}

CASE(create_sdma, "CREATE_QUEUE: SDMA, without EOP buffer and save area, doorbell in an engine's range")
{
	struct fixture f;
	uint64_t index;

	prepare(&f, SDMA);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	check_created(&f);
	index = (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)) / 8 % 512;
	CHECK_OP(index, >=, 0x100);
	CHECK_OP(index, <, 0x1a0);
	drop_queue(&f.gpu, &f.q);
}

CASE(create_88, "CREATE_QUEUE: the 88-byte structure of older user space")
{
	struct fixture f;
	const size_t size = offsetof(struct kfd_ioctl_create_queue_args, sdma_engine_id);

	CHECK_EQ(size, 88);
	prepare(&f, COMPUTE);
	/* What lies behind the 88 bytes must be neither read nor written. */
	f.q.args.sdma_engine_id = 0xdeadbeef;
	f.q.args.metadata_ring_size = 0xdeadbeef;
	CHECK_OK(kfd_call(f.gpu.fd, _IOC(_IOC_READ | _IOC_WRITE, 'K', 2, size), &f.q.args));
	check_created(&f);
	CHECK_EQ(f.q.args.sdma_engine_id, 0xdeadbeef);
	CHECK_EQ(f.q.args.metadata_ring_size, 0xdeadbeef);
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
}

CASE(create_min_ring, "CREATE_QUEUE: ring size 0 is raised to the minimum of 1024")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	f.q.args.ring_size = 0;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_EQ(f.q.args.ring_size, KFD_MIN_QUEUE_RING_SIZE);
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
}

CASE(create_small_ring, "CREATE_QUEUE: a ring smaller than its page")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	f.q.args.ring_size = 2048;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
}

CASE(create_large_ring, "CREATE_QUEUE: a ring of 1 MiB")
{
	struct fixture f;

	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 1 << 20);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	drop_queue(&f.gpu, &f.q);
}

CASE(create_bounds, "CREATE_QUEUE: percentage 0 and 100, priority 0 and 15 are accepted")
{
	static const uint32_t values[][2] = { { 0, 0 }, { 0, 15 }, { 100, 0 }, { 100, 15 }, { 1, 7 } };
	struct fixture f;

	prepare(&f, COMPUTE);
	for (unsigned int i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		f.q.args.queue_percentage = values[i][0];
		f.q.args.queue_priority = values[i][1];
		CHECK_OK(queue_create(&f.gpu, &f.q));
		CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	}
}

CASE(create_no_eop, "CREATE_QUEUE: no EOP buffer at all is accepted")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	f.q.args.eop_buffer_address = 0;
	f.q.args.eop_buffer_size = 0;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
}

#define REFUSES(id, text, field, value, errno_)                                            \
	CASE(id, "CREATE_QUEUE: " text)                                                    \
	{                                                                                  \
		struct fixture f;                                                          \
		prepare(&f, COMPUTE);                                                      \
		REFUSED(&f, field, value, errno_);                                         \
	}

REFUSES(bad_gpu, "an unknown GPU is EINVAL", gpu_id, f.gpu.id ^ 0x5555, EINVAL)
REFUSES(bad_percentage, "percentage 101 is EINVAL", queue_percentage, 101, EINVAL)
REFUSES(bad_percentage_byte, "percentage 255 is EINVAL", queue_percentage, 255, EINVAL)
REFUSES(bad_priority, "priority 16 is EINVAL", queue_priority, 16, EINVAL)
REFUSES(bad_ring_size, "a ring size that is no power of two is EINVAL", ring_size, 0x1800, EINVAL)
REFUSES(bad_ring_size_odd, "a ring size of 4095 is EINVAL", ring_size, 4095, EINVAL)
REFUSES(bad_metadata, "a metadata ring size that is no power of two is EINVAL", metadata_ring_size, 3, EINVAL)
REFUSES(bad_type, "type 5 is ENOTSUPP", queue_type, 5, KERNEL_ENOTSUPP)
REFUSES(bad_type_max, "type 0xffffffff is ENOTSUPP", queue_type, 0xffffffff, KERNEL_ENOTSUPP)
REFUSES(kernel_ring, "a ring at a kernel address is EFAULT", ring_base_address, KERNEL_ADDRESS, EFAULT)
REFUSES(kernel_wptr, "a write pointer at a kernel address is EFAULT", write_pointer_address, KERNEL_ADDRESS, EFAULT)
REFUSES(kernel_rptr, "a read pointer at a kernel address is EFAULT", read_pointer_address, KERNEL_ADDRESS, EFAULT)
REFUSES(kernel_eop, "an EOP buffer at a kernel address is EFAULT", eop_buffer_address, KERNEL_ADDRESS, EFAULT)
REFUSES(kernel_ctx, "a save area at a kernel address is EFAULT", ctx_save_restore_address, KERNEL_ADDRESS, EFAULT)
REFUSES(unmapped_ring, "a ring that is not mapped is EINVAL", ring_base_address, need_address(PAGE, PAGE), EINVAL)
REFUSES(no_ring, "no ring is EINVAL", ring_base_address, 0, EINVAL)
REFUSES(unmapped_wptr, "a write pointer that is not mapped is EINVAL", write_pointer_address,
	need_address(PAGE, PAGE), EINVAL)
REFUSES(unmapped_rptr, "a read pointer that is not mapped is EINVAL", read_pointer_address,
	need_address(PAGE, PAGE), EINVAL)
REFUSES(ring_larger, "a ring larger than its mapping is EINVAL", ring_size, 0x2000, EINVAL)
REFUSES(small_eop, "an EOP buffer of less than a page is EINVAL", eop_buffer_size, 2048, EINVAL)
REFUSES(large_eop, "an EOP size beyond its mapping is EINVAL", eop_buffer_size, 2 * PAGE, EINVAL)
REFUSES(unmapped_eop, "an EOP buffer that is not mapped is EINVAL", eop_buffer_address, need_address(PAGE, PAGE), EINVAL)
REFUSES(ctl_smaller, "a control stack smaller than the GPU's is EINVAL", ctl_stack_size,
	f.gpu.ctl_stack_size - PAGE, EINVAL)
REFUSES(ctl_larger, "a control stack larger than the GPU's is EINVAL", ctl_stack_size,
	f.gpu.ctl_stack_size + PAGE, EINVAL)
REFUSES(ctx_smaller, "a save area smaller than the GPU's is EINVAL", ctx_save_restore_size,
	f.gpu.cwsr_size - PAGE, EINVAL)
REFUSES(ctx_larger, "a save area larger than its mapping is EINVAL", ctx_save_restore_size,
	f.gpu.cwsr_size + PAGE, EINVAL)
REFUSES(unmapped_ctx, "a save area that is not mapped is EINVAL", ctx_save_restore_address,
	need_address(f.gpu.save_total, PAGE), EINVAL)
REFUSES(no_ctx, "no save area is EINVAL", ctx_save_restore_address, 0, EINVAL)

CASE(ring_smaller, "CREATE_QUEUE: a ring smaller than its mapping is EINVAL")
{
	struct fixture f;

	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x2000);
	REFUSED(&f, ring_size, 0x1000, EINVAL);
}

CASE(ring_inside, "CREATE_QUEUE: a ring inside a larger mapping is EINVAL")
{
	struct fixture f;

	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x2000);
	f.q.args.ring_size = 0x1000;
	f.q.args.ring_base_address += PAGE;
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
}

CASE(pointers_two_pages, "CREATE_QUEUE: pointers in a mapping of two pages are EINVAL")
{
	struct fixture f;
	struct bo two;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &two, FLAGS_GTT, 2 * PAGE);
	REFUSED(&f, write_pointer_address, two.va + 8, EINVAL);
}

CASE(rptr_two_pages, "CREATE_QUEUE: a read pointer in a mapping of two pages is EINVAL")
{
	struct fixture f;
	struct bo two;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &two, FLAGS_GTT, 2 * PAGE);
	REFUSED(&f, read_pointer_address, two.va + 16, EINVAL);
}

CASE(pointers_apart, "CREATE_QUEUE: the two pointers may lie in pages of their own")
{
	struct fixture f;
	struct bo other;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &other, FLAGS_GTT, PAGE);
	f.q.args.read_pointer_address = other.va + 64;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_ERR(bo_unmap(&f.gpu, &other), EBUSY);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &other);
}

CASE(ctx_mapping_larger, "CREATE_QUEUE: a save area inside a larger mapping is EINVAL")
{
	struct fixture f;
	struct bo larger;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &larger, FLAGS_USERPTR, f.gpu.save_total + PAGE);
	REFUSED(&f, ctx_save_restore_address, larger.va, EINVAL);
}

/* A packet of the queue has its effect. */
static void runs(struct fixture *f)
{
	struct packets p = { .n = 0 };
	struct bo out;

	need_bo(&f->gpu, &out, FLAGS_GTT, PAGE);
	pm4_write(&p, out.va, 0x51);
	submit(&f->q, &p);
	await32(bo32(&out, 0), 0x51, "the packet");
	drop_bo(&f->gpu, &out);
}

CASE(eop_three_pages, "CREATE_QUEUE: an EOP buffer of three pages is accepted, and of two in a mapping of three refused")
{
	struct fixture f;
	struct bo eop;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &eop, FLAGS_VRAM_PRIVATE, 3 * PAGE);
	f.q.args.eop_buffer_address = eop.va;
	f.q.args.eop_buffer_size = 2 * PAGE;
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	f.q.args.eop_buffer_size = 3 * PAGE;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	runs(&f);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &eop);
}

CASE(ctx_odd_size, "CREATE_QUEUE: a save area of 512 bytes more than needed, in a mapping of whole pages, is accepted")
{
	struct fixture f;
	struct bo area;

	prepare(&f, COMPUTE);
	need_bo(&f.gpu, &area, FLAGS_USERPTR, page_align(f.gpu.cwsr_size + 512 + f.gpu.debug_size));
	*bo32(&area, 16) = f.gpu.cwsr_size + 512;
	*bo32(&area, 20) = f.gpu.debug_size;
	f.q.args.ctx_save_restore_address = area.va;
	f.q.args.ctx_save_restore_size = f.gpu.cwsr_size + 512;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_ERR(bo_unmap(&f.gpu, &area), EBUSY);
	runs(&f);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &area);
}

CASE(unbound, "CREATE_QUEUE: before ACQUIRE_VM is ESRCH")
{
	struct fixture f = { 0 };

	need_gpu(&f.gpu, 0);
	f.q.args.gpu_id = f.gpu.id;
	f.q.args.ring_size = 0x1000;
	f.q.args.queue_percentage = 100;
	CHECK_ERR(kfd_call(f.gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &f.q.args), ESRCH);
}

CASE(engine_beyond, "CREATE_QUEUE: an SDMA engine that does not exist is EINVAL, from the first on")
{
	struct fixture f;

	prepare(&f, SDMA);
	f.q.args.queue_type = KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
	f.q.args.sdma_engine_id = 1000;
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	if (!sdma_numbers(&f.gpu))
		return;
	f.q.args.sdma_engine_id = sdma_numbers(&f.gpu);
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	f.q.args.sdma_engine_id--;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	drop_queue(&f.gpu, &f.q);
}

CASE(wptr_unaligned, "CREATE_QUEUE: an SDMA queue's write pointer that does not lie on 8 bytes is EINVAL")
{
	struct fixture f;

	if (!is_rkfd())
		SKIP("other drivers leave it to the engine");
	prepare(&f, SDMA);
	REFUSED(&f, write_pointer_address, f.q.pointers.va + 4, EINVAL);
}

CASE(engine_each, "CREATE_QUEUE: by engine id, each engine's doorbell in a range of its own")
{
	struct fixture f;
	uint64_t seen[16];

	prepare(&f, SDMA);
	if (!sdma_numbers(&f.gpu))
		SKIP("the topology does not tell the number of SDMA engines");
	f.q.args.queue_type = KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
	for (uint32_t e = 0; e < sdma_numbers(&f.gpu) && e < 16; e++) {
		f.q.args.sdma_engine_id = e;
		CHECK_OK(queue_create(&f.gpu, &f.q));
		seen[e] = (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)) / 8 % 512;
		for (uint32_t i = 0; i < e; i++)
			CHECK_NE(seen[i], seen[e]);
		CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	}
}

CASE(xgmi_absent, "CREATE_QUEUE: an XGMI SDMA queue on a GPU without XGMI engines is ENOMEM")
{
	struct fixture f;
	uint64_t engines;

	prepare(&f, SDMA);
	if (!topology_value(f.gpu.id, "properties", "num_sdma_xgmi_engines", &engines))
		SKIP("the topology does not tell the number of XGMI engines");
	if (engines)
		SKIP("this GPU has XGMI engines");
	f.q.args.queue_type = KFD_IOC_QUEUE_TYPE_SDMA_XGMI;
	CHECK_ERR(queue_create(&f.gpu, &f.q), ENOMEM);
}

/* Several queues over one set of buffers: only ids, doorbells and counts matter here. */
static int create_another(struct fixture *f, struct kfd_ioctl_create_queue_args *args)
{
	*args = f->q.args;
	return kfd_call(f->gpu.fd, AMDKFD_IOC_CREATE_QUEUE, args);
}

CASE(ids_lowest, "CREATE_QUEUE: ids count from 0 and the lowest free one is reused")
{
	struct kfd_ioctl_create_queue_args a[4];
	struct fixture f;

	prepare(&f, COMPUTE);
	for (uint32_t i = 0; i < 4; i++) {
		CHECK_OK(create_another(&f, &a[i]));
		CHECK_EQ(a[i].queue_id, i);
	}
	CHECK_OK(queue_destroy(&f.gpu, 1));
	CHECK_OK(queue_destroy(&f.gpu, 2));
	CHECK_OK(create_another(&f, &a[1]));
	CHECK_EQ(a[1].queue_id, 1);
}

CASE(doorbells_distinct, "CREATE_QUEUE: doorbells of live queues are distinct, of every type")
{
	struct kfd_ioctl_create_queue_args a[24];
	struct fixture compute, sdma;

	prepare(&compute, COMPUTE);
	sdma.gpu = compute.gpu;
	queue_prepare(&sdma.gpu, &sdma.q, SDMA, 0x1000);
	for (int i = 0; i < 24; i++) {
		CHECK_OK(create_another(i % 3 == 2 ? &sdma : &compute, &a[i]));
		for (int j = 0; j < i; j++)
			CHECK_NE(a[j].doorbell_offset, a[i].doorbell_offset);
	}
}

CASE_LIMIT(limit, "CREATE_QUEUE: the per-process limit is ENOSPC, and a destroyed queue makes room", 120)
{
	struct kfd_ioctl_create_queue_args args;
	struct fixture f;
	unsigned int n = 0;
	int err = 0;

	prepare(&f, COMPUTE);
	while (n < 400 && !(err = create_another(&f, &args)))
		n++;
	CHECK_ERR(err, ENOSPC);
	if (takes_turns())
		CHECK(n == 127 || n == 255);
	else
		CHECK_EQ(n, 24);
	CHECK_OK(queue_destroy(&f.gpu, 5));
	CHECK_OK(create_another(&f, &args));
	CHECK_EQ(args.queue_id, 5);
}

CASE(sdma_exhaustion, "CREATE_QUEUE: no free SDMA queue is ENOMEM, and a destroyed one makes room")
{
	struct kfd_ioctl_create_queue_args args;
	struct fixture f;
	unsigned int n = 0, slots;
	int err = 0;

	prepare(&f, SDMA);
	slots = f.gpu.sdma_engines * f.gpu.sdma_queues_per_engine;
	if (!slots)
		SKIP("the topology does not tell the number of SDMA queues");
	if (slots >= 127)
		SKIP("more SDMA queues than a process may have");
	while (n <= slots && !(err = create_another(&f, &args)))
		n++;
	CHECK_ERR(err, ENOMEM);
	CHECK_EQ(n, slots);
	CHECK_OK(queue_destroy(&f.gpu, 0));
	CHECK_OK(create_another(&f, &args));
}

CASE(destroy_unknown, "DESTROY_QUEUE: an unknown queue, and a second time, are EINVAL")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	CHECK_ERR(queue_destroy(&f.gpu, 0), EINVAL);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_ERR(queue_destroy(&f.gpu, 1), EINVAL);
	CHECK_ERR(queue_destroy(&f.gpu, 0xffffffff), EINVAL);
	CHECK_OK(queue_destroy(&f.gpu, 0));
	CHECK_ERR(queue_destroy(&f.gpu, 0), EINVAL);
}

CASE(buffers_held, "a live queue's buffers cannot be unmapped (EBUSY) or freed; after DESTROY they can")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_ERR(bo_unmap(&f.gpu, &f.q.ring), EBUSY);
	CHECK_ERR(bo_unmap(&f.gpu, &f.q.pointers), EBUSY);
	CHECK_ERR(bo_unmap(&f.gpu, &f.q.eop), EBUSY);
	CHECK_ERR(bo_unmap(&f.gpu, &f.q.save), EBUSY);
	CHECK_ERR(bo_free(&f.gpu, &f.q.ring), EBUSY);
	drop_queue(&f.gpu, &f.q);
}

CASE(buffers_shared, "a buffer that two queues use is held until both are gone")
{
	struct kfd_ioctl_create_queue_args second;
	struct fixture f;

	prepare(&f, COMPUTE);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_OK(create_another(&f, &second));
	CHECK_OK(queue_destroy(&f.gpu, second.queue_id));
	CHECK_ERR(bo_unmap(&f.gpu, &f.q.eop), EBUSY);
	drop_queue(&f.gpu, &f.q);
}

static void child_tries_queue(void *unused)
{
	struct gpu gpu;
	struct queue q = { .args = { .queue_id = 0, .ring_size = 0x1000 } };

	need_vm(&gpu, 0);
	CHECK_ERR(queue_destroy(&gpu, 0), EINVAL);
	CHECK_ERR(queue_update(&gpu, &q, 100, 7), EFAULT);
}

CASE(foreign_queue, "another process's queue is unknown here")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	CHECK_OK(queue_create(&f.gpu, &f.q));
	CHECK_EQ(in_child(child_tries_queue, NULL), 0);
	drop_queue(&f.gpu, &f.q);
}

CASE(left_live, "live queues are left to the end of the process")
{
	struct kfd_ioctl_create_queue_args args;
	struct fixture f;

	prepare(&f, COMPUTE);
	for (int i = 0; i < 8; i++)
		CHECK_OK(create_another(&f, &args));
}

CASE(create_destroy_many, "200 queues one after the other")
{
	struct fixture f;

	prepare(&f, COMPUTE);
	for (int i = 0; i < 200; i++) {
		struct kfd_ioctl_create_queue_args args;

		CHECK_OK(create_another(&f, &args));
		CHECK_EQ(args.queue_id, 0);
		CHECK_OK(queue_destroy(&f.gpu, 0));
	}
}
