// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "survivor.h"

#include <unistd.h>

void survivor_begin(struct survivor *s)
{
	need_vm(&s->gpu, 0);
	need_queue(&s->gpu, &s->q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	need_bo(&s->gpu, &s->bo, FLAGS_GTT, PAGE);
	s->count = 0;
	s->memory = available_settled(&s->gpu);
}

void survivor_works(struct survivor *s)
{
	struct packets p = { .n = 0 };

	pm4_write(&p, s->bo.va, ++s->count);
	submit(&s->q, &p);
	await32(bo32(&s->bo, 0), s->count, "the survivor's work");
}

void survivor_end(struct survivor *s)
{
	survivor_works(s);
	await_available(&s->gpu, s->memory);
	drop_queue(&s->gpu, &s->q);
	drop_bo(&s->gpu, &s->bo);
}

void killed_beside_survivor(void (*act)(int ready), unsigned int times, unsigned int us)
{
	struct survivor s;

	survivor_begin(&s);
	for (unsigned int i = 0; i < times; i++) {
		pid_t pid = start_child(act);

		usleep(us * i);
		kill_child(pid);
		survivor_works(&s);
	}
	survivor_end(&s);
}

void stand_still(struct queue *q, uint64_t va, volatile uint32_t *cpu)
{
	struct packets p = { .n = 0 };

	cpu[0] = cpu[2] = 0;
	pm4_write(&p, va + 8, 1);
	pm4_wait(&p, EQUAL, va, 42, 0xffffffff);
	submit(q, &p);
	await32(cpu + 2, 1, "the packet before the wait");
}
