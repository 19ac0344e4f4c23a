// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The kernel's face as the runtime sees it: a program linked with ROCr, unmodified.
 *
 * No kernel is dispatched: that needs a GPU that executes instructions. Everything before it is here.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include "tap.h"

#define PAGE 4096ul

static void must(hsa_status_t status, const char *call, int line)
{
	const char *text = NULL;

	if (status == HSA_STATUS_SUCCESS || status == HSA_STATUS_INFO_BREAK)
		return;
	hsa_status_string(status, &text);
	tap_fail(__FILE__, line, "%s: %#x %s", call, status, text ? text : "");
}

#define HSA(call) must(call, #call, __LINE__)

struct machine {
	hsa_agent_t cpu, gpus[8];
	unsigned int cpus, n;
};

static hsa_status_t add_agent(hsa_agent_t agent, void *data)
{
	struct machine *m = data;
	hsa_device_type_t type;

	HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
	if (type == HSA_DEVICE_TYPE_CPU) {
		m->cpu = agent;
		m->cpus++;
	} else if (type == HSA_DEVICE_TYPE_GPU && m->n < 8) {
		m->gpus[m->n++] = agent;
	}
	return HSA_STATUS_SUCCESS;
}

static void start(struct machine *m)
{
	memset(m, 0, sizeof(*m));
	if (access("/dev/kfd", F_OK))
		LACKING("no /dev/kfd");
	HSA(hsa_init());
	HSA(hsa_iterate_agents(add_agent, m));
	CHECK_OP(m->cpus, >=, 1);
	if (!m->n)
		LACKING("no GPU");
}

struct pool_search {
	hsa_amd_memory_pool_t pool;
	uint32_t flags; /* Wanted, or 0 for any. */
	bool found;
};

static hsa_status_t take_pool(hsa_amd_memory_pool_t pool, void *data)
{
	struct pool_search *s = data;
	hsa_amd_segment_t segment;
	uint32_t flags;
	bool usable;

	HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
	if (segment != HSA_AMD_SEGMENT_GLOBAL)
		return HSA_STATUS_SUCCESS;
	HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
	HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &usable));
	if (!usable || (s->flags && !(flags & s->flags)))
		return HSA_STATUS_SUCCESS;
	s->pool = pool;
	s->found = true;
	return HSA_STATUS_INFO_BREAK;
}

static hsa_amd_memory_pool_t need_pool(hsa_agent_t agent, uint32_t flags)
{
	struct pool_search s = { .flags = flags };

	HSA(hsa_amd_agent_iterate_memory_pools(agent, take_pool, &s));
	if (!s.found)
		FAIL("no memory pool with flags %#x", flags);
	return s.pool;
}

CASE(agents, "hsa_init: a CPU agent, and GPU agents with name, ISA, caches and queue limits")
{
	struct machine m;

	start(&m);
	for (unsigned int i = 0; i < m.n; i++) {
		uint32_t wave, queues, cus, min_size, max_size;
		char name[64], product[64];
		hsa_agent_feature_t feature;

		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_NAME, name));
		HSA(hsa_agent_get_info(m.gpus[i], (hsa_agent_info_t)HSA_AMD_AGENT_INFO_PRODUCT_NAME, product));
		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_FEATURE, &feature));
		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_WAVEFRONT_SIZE, &wave));
		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_QUEUES_MAX, &queues));
		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_QUEUE_MIN_SIZE, &min_size));
		HSA(hsa_agent_get_info(m.gpus[i], HSA_AGENT_INFO_QUEUE_MAX_SIZE, &max_size));
		HSA(hsa_agent_get_info(m.gpus[i], (hsa_agent_info_t)HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, &cus));
		tap_note("%s, %s: %u CUs", name, product, cus);
		CHECK(!strncmp(name, "gfx9", 4));
		CHECK_NE(product[0], 0);
		CHECK(feature & HSA_AGENT_FEATURE_KERNEL_DISPATCH);
		CHECK_EQ(wave, 64);
		CHECK_OP(queues, >, 0);
		CHECK_OP(min_size, <=, max_size);
		CHECK_OP(cus, >, 0);
	}
	HSA(hsa_shut_down());
}

static hsa_status_t count_isa(hsa_isa_t isa, void *data)
{
	char name[128] = "";

	HSA(hsa_isa_get_info_alt(isa, HSA_ISA_INFO_NAME, name));
	CHECK(!strncmp(name, "amdgcn-amd-amdhsa--gfx9", 23));
	++*(unsigned int *)data;
	return HSA_STATUS_SUCCESS;
}

CASE(isas, "every GPU agent has an ISA of the amdgcn target")
{
	struct machine m;

	start(&m);
	for (unsigned int i = 0; i < m.n; i++) {
		unsigned int n = 0;

		HSA(hsa_agent_iterate_isas(m.gpus[i], count_isa, &n));
		CHECK_OP(n, >, 0);
	}
	HSA(hsa_shut_down());
}

CASE(pools, "memory pools: fine- and coarse-grained and kernel arguments on the CPU, coarse-grained on the GPU")
{
	struct machine m;
	size_t size;

	start(&m);
	need_pool(m.cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED);
	need_pool(m.cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
	need_pool(m.cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT);
	for (unsigned int i = 0; i < m.n; i++) {
		hsa_amd_memory_pool_t pool = need_pool(m.gpus[i], HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);

		HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SIZE, &size));
		CHECK_OP(size, >=, 64 << 20);
	}
	HSA(hsa_shut_down());
}

static void copies(hsa_amd_memory_pool_t from, hsa_amd_memory_pool_t to, struct machine *m)
{
	uint32_t *a, *b;

	HSA(hsa_amd_memory_pool_allocate(from, 16 * PAGE, 0, (void **)&a));
	HSA(hsa_amd_memory_pool_allocate(to, 16 * PAGE, 0, (void **)&b));
	HSA(hsa_amd_agents_allow_access(m->n, m->gpus, NULL, a));
	HSA(hsa_amd_agents_allow_access(m->n, m->gpus, NULL, b));
	for (uint32_t i = 0; i < 4 * PAGE; i++)
		((volatile uint32_t *)a)[i] = i * 0x9e3779b9;
	for (uint32_t i = 0; i < 4 * PAGE; i++)
		((volatile uint32_t *)b)[i] = ((volatile uint32_t *)a)[i];
	for (uint32_t i = 0; i < 4 * PAGE; i++)
		CHECK_EQ(((volatile uint32_t *)b)[i], (uint32_t)(i * 0x9e3779b9));
	HSA(hsa_amd_memory_pool_free(a));
	HSA(hsa_amd_memory_pool_free(b));
}

CASE(memory, "pool memory: allocated, given to the GPUs, copied by the CPU, freed; host to host and host to VRAM")
{
	hsa_amd_memory_pool_t host, vram;
	struct machine m;

	start(&m);
	host = need_pool(m.cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED);
	copies(host, host, &m);
	vram = need_pool(m.gpus[0], HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
	m.n = 1;
	copies(host, vram, &m);
	copies(vram, host, &m);
	HSA(hsa_shut_down());
}

CASE(locked, "memory of the program is locked for the GPU and unlocked")
{
	struct machine m;
	void *p, *device;

	start(&m);
	p = aligned_alloc(PAGE, 8 * PAGE);
	CHECK(p);
	memset(p, 0x5a, 8 * PAGE);
	HSA(hsa_amd_memory_lock(p, 8 * PAGE, m.gpus, 1, &device));
	CHECK(device);
	HSA(hsa_amd_memory_unlock(p));
	CHECK_EQ(*(uint8_t *)p, 0x5a);
	HSA(hsa_shut_down());
}

CASE(signal_value, "signals: created with a value, stored, loaded, added, destroyed")
{
	struct machine m;
	hsa_signal_t s;

	start(&m);
	HSA(hsa_signal_create(7, 0, NULL, &s));
	CHECK_EQ(hsa_signal_load_scacquire(s), 7);
	hsa_signal_store_screlease(s, 9);
	hsa_signal_add_screlease(s, 3);
	hsa_signal_subtract_screlease(s, 2);
	CHECK_EQ(hsa_signal_load_scacquire(s), 10);
	CHECK_EQ(hsa_signal_exchange_scacq_screl(s, 1), 10);
	CHECK_EQ(hsa_signal_load_scacquire(s), 1);
	HSA(hsa_signal_destroy(s));
	HSA(hsa_shut_down());
}

struct team {
	hsa_signal_t go, done;
};

static void *member(void *arg)
{
	struct team *t = arg;

	/* Blocked: the thread sleeps on the signal's event. */
	if (hsa_signal_wait_scacquire(t->go, HSA_SIGNAL_CONDITION_EQ, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) != 1)
		return (void *)1;
	hsa_signal_subtract_screlease(t->done, 1);
	return NULL;
}

CASE(signal_threads, "signals: eight threads sleep on one, one store wakes them all, each counts another down")
{
	struct machine m;
	struct team team;
	pthread_t t[8];

	start(&m);
	for (int round = 0; round < 20; round++) {
		HSA(hsa_signal_create(0, 0, NULL, &team.go));
		HSA(hsa_signal_create(8, 0, NULL, &team.done));
		for (int i = 0; i < 8; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, member, &team), 0);
		hsa_signal_store_screlease(team.go, 1);
		CHECK_EQ(hsa_signal_wait_scacquire(team.done, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX,
						   HSA_WAIT_STATE_BLOCKED),
			 0);
		for (int i = 0; i < 8; i++) {
			void *failed;

			CHECK_EQ(pthread_join(t[i], &failed), 0);
			CHECK(!failed);
		}
		HSA(hsa_signal_destroy(team.go));
		HSA(hsa_signal_destroy(team.done));
	}
	HSA(hsa_shut_down());
}

static bool handled(hsa_signal_value_t value, void *arg)
{
	hsa_signal_store_screlease(*(hsa_signal_t *)arg, value);
	return false;
}

CASE(signal_handler, "signals: an asynchronous handler runs when its condition comes true")
{
	struct machine m;
	hsa_signal_t cause, effect;

	start(&m);
	HSA(hsa_signal_create(1, 0, NULL, &cause));
	HSA(hsa_signal_create(1, 0, NULL, &effect));
	HSA(hsa_amd_signal_async_handler(cause, HSA_SIGNAL_CONDITION_LT, 1, handled, &effect));
	hsa_signal_store_screlease(cause, 0);
	CHECK_EQ(hsa_signal_wait_scacquire(effect, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX, HSA_WAIT_STATE_BLOCKED), 0);
	HSA(hsa_signal_destroy(cause));
	HSA(hsa_signal_destroy(effect));
	HSA(hsa_shut_down());
}

CASE_LIMIT(queue_barrier, "a queue: barrier packets complete signals, one waiting for another's", 120)
{
	hsa_barrier_and_packet_t *ring;
	hsa_signal_t first, second;
	struct machine m;
	hsa_queue_t *q;

	start(&m);
	HSA(hsa_queue_create(m.gpus[0], 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, 0, 0, &q));
	ring = q->base_address;
	for (int round = 0; round < 50; round++) {
		HSA(hsa_signal_create(1, 0, NULL, &first));
		HSA(hsa_signal_create(1, 0, NULL, &second));
		for (int i = 0; i < 2; i++) {
			uint64_t index = hsa_queue_add_write_index_screlease(q, 1);
			hsa_barrier_and_packet_t *p = &ring[index % q->size];

			memset((char *)p + 2, 0, sizeof(*p) - 2);
			if (i)
				p->dep_signal[0] = first;
			p->completion_signal = i ? second : first;
			__atomic_store_n(&p->header,
					 HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE |
						 1 << HSA_PACKET_HEADER_BARRIER |
						 HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
						 HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE,
					 __ATOMIC_RELEASE);
			hsa_signal_store_screlease(q->doorbell_signal, index);
		}
		CHECK_EQ(hsa_signal_wait_scacquire(second, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX,
						   HSA_WAIT_STATE_BLOCKED),
			 0);
		CHECK_EQ(hsa_signal_load_scacquire(first), 0);
		HSA(hsa_signal_destroy(first));
		HSA(hsa_signal_destroy(second));
	}
	HSA(hsa_queue_destroy(q));
	HSA(hsa_shut_down());
}

/* What of an agent must not change between two starts of the runtime. */
struct identity {
	char name[64], product[64];
	uint32_t node, chip, address;
};

static void identify(hsa_agent_t agent, struct identity *id)
{
	memset(id, 0, sizeof(*id));
	HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_NAME, id->name));
	HSA(hsa_agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_PRODUCT_NAME, id->product));
	HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_NODE, &id->node));
	HSA(hsa_agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_CHIP_ID, &id->chip));
	HSA(hsa_agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &id->address));
}

/* A page through the GPU's memory and back, with what only this round writes. */
static void copy_page(const struct machine *m, uint32_t seed)
{
	hsa_amd_memory_pool_t host = need_pool(m->cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED);
	hsa_amd_memory_pool_t vram = need_pool(m->gpus[0], HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
	volatile uint32_t *at[3];

	for (int i = 0; i < 3; i++) {
		HSA(hsa_amd_memory_pool_allocate(i == 1 ? vram : host, PAGE, 0, (void **)&at[i]));
		HSA(hsa_amd_agents_allow_access(1, m->gpus, NULL, (void *)at[i]));
	}
	for (uint32_t i = 0; i < PAGE / 4; i++)
		at[0][i] = (seed << 16) + i * 0x9e37;
	for (int k = 0; k < 2; k++)
		for (uint32_t i = 0; i < PAGE / 4; i++)
			at[k + 1][i] = at[k][i];
	for (uint32_t i = 0; i < PAGE / 4; i++)
		CHECK_EQ(at[2][i], (uint32_t)((seed << 16) + i * 0x9e37));
	for (int i = 0; i < 3; i++)
		HSA(hsa_amd_memory_pool_free((void *)at[i]));
}

CASE_LIMIT(hundred_times, "init, memory, signals between threads and shut-down, 100 times in one process: the same agents each time", 300)
{
	enum { THREADS = 4 };
	struct identity first[8], now;
	unsigned int n = 0;

	for (uint32_t round = 0; round < 100; round++) {
		struct machine m;
		struct team team;
		pthread_t t[THREADS];

		start(&m);
		if (!round)
			n = m.n;
		CHECK_EQ(m.n, n);
		for (unsigned int i = 0; i < n; i++) {
			identify(m.gpus[i], round ? &now : &first[i]);
			CHECK(!round || !memcmp(&now, &first[i], sizeof(now)));
		}
		copy_page(&m, round + 1);
		HSA(hsa_signal_create(0, 0, NULL, &team.go));
		HSA(hsa_signal_create(THREADS, 0, NULL, &team.done));
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, member, &team), 0);
		hsa_signal_store_screlease(team.go, 1);
		CHECK_EQ(hsa_signal_wait_scacquire(team.done, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX,
						   HSA_WAIT_STATE_BLOCKED),
			 0);
		for (int i = 0; i < THREADS; i++) {
			void *failed;

			CHECK_EQ(pthread_join(t[i], &failed), 0);
			CHECK(!failed);
		}
		HSA(hsa_signal_destroy(team.go));
		HSA(hsa_signal_destroy(team.done));
		HSA(hsa_shut_down());
	}
}
