// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: a queue that the GPU does not let go. The case is there only where LIBRARY_NO_RECOVERY is set,
 * since nobody can use the GPU afterwards, and needs a driver that does not mend it (gpu_recovery=0).
 */
#include "library.h"

#include "model.h"

static void refused(void)
{
	static char before[1 << 20];
	struct rkfd_queue_info info, after;
	unsigned int looks = 0;
	uint32_t *ring, copy[64];
	struct rkfd_buffer *b;
	struct rkfd_event *e;
	struct rkfd_queue *q;
	uint32_t value = 2;
	char request[128];

	need_vm();
	need_model();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	q = queue(RKFD_QUEUE_PM4);
	write_by(q, e, rkfd_buffer_gpu(b), 1);
	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"ignore-reset\",\"doorbell\":%lu}",
		 new_doorbell(before, ask_model("{\"cmd\":\"queues\"}")));
	ask_model(request);
	/* Packets that the GPU knows of and does not come to. */
	OK(rkfd_pm4_write(q, rkfd_buffer_gpu(b) + 4, &value, 1));
	OK(rkfd_queue_commit(q));
	info = info_of(q);
	ring = (uint32_t *)(uintptr_t)info.ring;
	memcpy(copy, ring, sizeof(copy));
	/* At the second time the kernel does not know the queue any more. The GPU has it nevertheless. */
	FAILS(rkfd_queue_free(q), EIO, "DESTROY_QUEUE");
	FAILS(rkfd_queue_free(q), EIO, "DESTROY_QUEUE");
	after = info_of(q);
	CHECK_EQ(memcmp(&info, &after, sizeof(info)), 0);
	CHECK_EQ(memcmp(copy, ring, sizeof(copy)), 0);
	CHECK_EQ(*(volatile uint64_t *)(uintptr_t)info.write_pointer, info.written);
	CHECK_NE(info.read, info.written);
	CHECK_EQ(dword(b, 1), 0);
	/* It goes on where it was: reads the ring, and writes where it says how far it is. */
	ask_model("{\"cmd\":\"clear-faults\"}");
	while (dword(b, 1) != value || info_of(q).read != info.written) {
		CHECK_OP(looks++, <, PATIENCE_MS);
		usleep(1000);
	}
	/* No new list was given to it, so it has the queue still. */
	FAILS(rkfd_queue_free(q), EIO, "DESTROY_QUEUE");
}

__attribute__((constructor)) static void offer(void)
{
	static struct tap_case c = {
		"a queue that the GPU does not let go keeps its memory, and the GPU uses it", refused, 180, NULL,
	};

	if (getenv("LIBRARY_NO_RECOVERY"))
		tap_register(&c);
}
