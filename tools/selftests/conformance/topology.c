// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The topology in sysfs: what clients parse, divide by and decide on.
 */
#include "kfd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOPOLOGY "/sys/devices/virtual/kfd/kfd/topology"

static char *slurp(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	n = read(fd, buffer, size - 1);
	if (n < 0)
		FAIL("%s: %s", path, strerror(errno));
	buffer[n] = '\0';
	close(fd);
	return buffer;
}

static uint64_t property(const struct gpu *gpu, const char *key)
{
	uint64_t v;

	if (!topology_value(gpu->id, "properties", key, &v))
		FAIL("no property %s", key);
	return v;
}

static int node_number(const struct gpu *gpu)
{
	char path[128], text[64];

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/gpu_id", i);
		if (strtoul(slurp(path, text, sizeof(text)), NULL, 10) == gpu->id)
			return i;
	}
	FAIL("no node has the GPU's id");
}

CASE(generation, "the generation is a number that does not move by itself")
{
	char a[64], b[64];

	need_gpu(&(struct gpu){ 0 }, 0);
	slurp(TOPOLOGY "/generation_id", a, sizeof(a));
	CHECK_OP(atoi(a), >, 0);
	for (int i = 0; i < 20; i++)
		CHECK(!strcmp(a, slurp(TOPOLOGY "/generation_id", b, sizeof(b))));
}

CASE(system_properties, "system_properties has its three keys")
{
	char text[4096];

	need_gpu(&(struct gpu){ 0 }, 0);
	slurp(TOPOLOGY "/system_properties", text, sizeof(text));
	CHECK(strstr(text, "platform_oem "));
	CHECK(strstr(text, "platform_id "));
	CHECK(strstr(text, "platform_rev "));
}

CASE(no_holes, "nodes are numbered without holes, CPUs first, and every GPU has one, in the order of the apertures")
{
	uint32_t ids[MAX_GPUS];
	unsigned int n = gpu_ids(need_kfd(), ids, MAX_GPUS), gpus = 0, nodes = 0;

	if (!n)
		LACKING("no GPU");
	for (;; nodes++) {
		char path[128], text[4096];
		unsigned long id;

		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%u", nodes);
		if (access(path, F_OK))
			break;
		strcat(path, "/gpu_id");
		id = strtoul(slurp(path, text, sizeof(text)), NULL, 10);
		if (id) {
			CHECK_OP(gpus, <, n);
			CHECK_EQ(id, ids[gpus]);
			gpus++;
		} else {
			CHECK_EQ(gpus, 0);
		}
	}
	CHECK_OP(nodes, >, gpus);
	CHECK_EQ(gpus, n);
}

CASE(gpu_node, "a GPU node has what the clients divide by and decide on")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_EQ(property(&gpu, "cpu_cores_count"), 0);
	CHECK_OP(property(&gpu, "simd_count"), >, 0);
	CHECK_OP(property(&gpu, "simd_per_cu"), >, 0);
	CHECK_EQ(property(&gpu, "simd_count") % property(&gpu, "simd_per_cu"), 0);
	CHECK_OP(property(&gpu, "array_count"), >, 0);
	CHECK_EQ(property(&gpu, "simd_arrays_per_engine"), 1);
	CHECK_EQ(property(&gpu, "lds_size_in_kb"), 64);
	CHECK_EQ(property(&gpu, "wave_front_size"), 64);
	CHECK_EQ(property(&gpu, "vendor_id"), 0x1002);
	CHECK_OP(property(&gpu, "caches_count"), >, 0);
	CHECK_OP(property(&gpu, "mem_banks_count"), >, 0);
	CHECK_OP(property(&gpu, "io_links_count"), >, 0);
	CHECK_OP(property(&gpu, "fw_version") & 0x3ff, >, 0);
	CHECK_OP(property(&gpu, "sdma_fw_version") & 0x3ff, >, 0);
	CHECK_OP(property(&gpu, "max_engine_clk_fcompute"), >, 0);
	/* 8-byte doorbells. */
	CHECK_EQ(property(&gpu, "capability") >> 12 & 3, 2);
	CHECK_OP(property(&gpu, "drm_render_minor"), >=, 128);
	CHECK_OP(property(&gpu, "drm_render_minor"), <=, 255);
}

CASE(counts, "the counts agree with the directories")
{
	static const char *const kinds[][2] = { { "mem_banks", "mem_banks_count" },
						{ "caches", "caches_count" },
						{ "io_links", "io_links_count" },
						{ "p2p_links", "p2p_links_count" } };
	struct gpu gpu;
	int node;

	need_gpu(&gpu, 0);
	node = node_number(&gpu);
	for (unsigned int k = 0; k < 4; k++) {
		unsigned int n = 0;
		char path[160];

		for (;; n++) {
			snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/%s/%u/properties", node, kinds[k][0], n);
			if (access(path, R_OK))
				break;
		}
		if (n != property(&gpu, kinds[k][1]))
			FAIL("%s: %u directories, the property says %llu", kinds[k][0], n,
			     (unsigned long long)property(&gpu, kinds[k][1]));
	}
}

CASE(links, "every link starts at its own node and ends at another that exists")
{
	char path[160];

	need_gpu(&(struct gpu){ 0 }, 0);
	for (unsigned int node = 0;; node++) {
		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%u", node);
		if (access(path, F_OK))
			break;
		for (unsigned int link = 0;; link++) {
			unsigned long long from, to;
			char text[4096], *p;

			snprintf(path, sizeof(path), TOPOLOGY "/nodes/%u/io_links/%u/properties", node, link);
			if (access(path, F_OK))
				break;
			slurp(path, text, sizeof(text));
			p = strstr(text, "node_from ");
			CHECK(p && sscanf(p, "node_from %llu", &from) == 1);
			p = strstr(text, "node_to ");
			CHECK(p && sscanf(p, "node_to %llu", &to) == 1);
			CHECK_EQ(from, node);
			CHECK_NE(to, node);
			snprintf(path, sizeof(path), TOPOLOGY "/nodes/%llu", to);
			CHECK_EQ(access(path, F_OK), 0);
		}
	}
}

CASE(every_cache, "every cache has a level from 1 on, a size and a kind, and ends with the map of who shares it")
{
	need_gpu(&(struct gpu){ 0 }, 0);
	for (unsigned int node = 0;; node++) {
		char path[160], text[4096], *map;

		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%u", node);
		if (access(path, F_OK))
			break;
		for (unsigned int cache = 0;; cache++) {
			unsigned long long level, size, type;

			snprintf(path, sizeof(path), TOPOLOGY "/nodes/%u/caches/%u/properties", node, cache);
			if (access(path, F_OK))
				break;
			slurp(path, text, sizeof(text));
			if (sscanf(text, "processor_id_low %*u level %llu size %llu", &level, &size) != 2)
				FAIL("%s: begins otherwise: %.60s", path, text);
			CHECK_OP(level, >=, 1);
			CHECK_OP(level, <=, 4);
			CHECK_OP(size, >, 0);
			map = strstr(text, "type ");
			CHECK(map && sscanf(map, "type %llu", &type) == 1);
			/* Data or instructions, of a CPU or of compute units. */
			CHECK_NE(type & 3, 0);
			CHECK_NE(type & 0xc, 0);
			map = strstr(text, "\nsibling_map 1");
			if (!map || strchr(map + 1, '\n') != text + strlen(text) - 1)
				FAIL("%s: the last line is no map that begins with the cache's own processor", path);
		}
	}
}

CASE(sizes, "the save area's sizes are those of the formula")
{
	struct gpu gpu;
	uint64_t cus, engines, waves, ctl, vgpr;

	need_gpu(&gpu, 0);
	cus = property(&gpu, "simd_count") / property(&gpu, "simd_per_cu") / property(&gpu, "num_xcc");
	engines = property(&gpu, "array_count") / property(&gpu, "simd_arrays_per_engine");
	waves = cus * 40 < engines * 512 ? cus * 40 : engines * 512;
	ctl = (40 + waves * 8 + 8 + PAGE - 1) & ~(PAGE - 1);
	vgpr = gpu.gfx == 90402 || gpu.gfx == 90010 || gpu.gfx == 90008 ? 0x80000 : 0x40000;
	CHECK_EQ(property(&gpu, "ctl_stack_size"), ctl);
	CHECK_EQ(property(&gpu, "cwsr_size"), ctl + ((cus * (vgpr + 0x15000) + PAGE - 1) & ~(PAGE - 1)));
}

CASE(memory, "the VRAM bank holds what AVAILABLE_MEMORY offers")
{
	struct kfd_ioctl_get_available_memory_args args = { 0 };
	struct gpu gpu;
	uint64_t heap;

	need_vm(&gpu, 0);
	CHECK(topology_value(gpu.id, "mem_banks/0/properties", "heap_type", &heap));
	CHECK(heap == 1 || heap == 2);
	args.gpu_id = gpu.id;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_AVAILABLE_MEMORY, &args));
	CHECK_OP(gpu.vram, >=, args.available);
}

CASE(caches, "a GPU has a data cache of the kind that the runtime looks for, levels from 1 up")
{
	struct gpu gpu;
	bool data = false;
	int node;

	need_gpu(&gpu, 0);
	node = node_number(&gpu);
	for (unsigned int n = 0;; n++) {
		unsigned long long level, type;
		char path[160], text[4096], *p;

		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/caches/%u/properties", node, n);
		if (access(path, F_OK))
			break;
		slurp(path, text, sizeof(text));
		p = strstr(text, "level ");
		CHECK(p && sscanf(p, "level %llu", &level) == 1);
		p = strstr(text, "\ntype ");
		CHECK(p && sscanf(p, "\ntype %llu", &type) == 1);
		CHECK_OP(level, >=, 1);
		CHECK_OP(level, <=, 3);
		/* Data and HSACU bits. */
		data |= (type & 9) == 9;
		CHECK(strstr(text, "sibling_map "));
	}
	CHECK(data);
}
