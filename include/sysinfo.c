// SPDX-License-Identifier: GPL-2.0
/*
 * Facts about the machine that only inline functions and macros tell.
 */

#include <linux/cacheinfo.h>
#include <linux/cpu.h>
#include <linux/cpufreq.h>
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/pci.h>
#include <linux/topology.h>
#ifdef CONFIG_X86
#include <asm/processor.h>
#include <asm/tsc.h>
#endif

#include "rkfd_helpers.h"

/* The first online node above @after, or -1. */
int rkfd_next_online_node(int after)
{
	int node;

	for_each_online_node(node)
		if (node > after)
			return node;
	return -1;
}

unsigned int rkfd_node_cpus(int node)
{
	return cpumask_weight(cpumask_of_node(node));
}

static unsigned int hardware_id(unsigned int cpu)
{
#ifdef CONFIG_X86
	return cpu_data(cpu).topo.apicid;
#else
	return cpu;
#endif
}

unsigned int rkfd_node_first_cpu_id(int node)
{
	unsigned int cpu = cpumask_first(cpumask_of_node(node));

	return cpu < nr_cpu_ids ? hardware_id(cpu) : 0;
}

/* The first CPU of a node above @after, or -1. */
int rkfd_next_cpu_of_node(int node, int after)
{
	unsigned int cpu = cpumask_next(after, cpumask_of_node(node));

	return cpu < nr_cpu_ids ? (int)cpu : -1;
}

static int is_index(struct device *dev, const void *index)
{
	unsigned int number;

	return sscanf(dev_name(dev), "index%u", &number) == 1 && number == *(const unsigned int *)index;
}

static void describe_cache(const struct cacheinfo *info, unsigned int cpu, struct rkfd_cpu_cache_info *out)
{
	unsigned int sharer;

	*out = (struct rkfd_cpu_cache_info){
		.processor = hardware_id(cpu),
		.level = info->level,
		.size = info->size,
		.line = info->coherency_line_size,
		.lines_per_tag = info->physical_line_partition,
		.ways = info->ways_of_associativity,
		.data = info->type == CACHE_TYPE_DATA || info->type == CACHE_TYPE_UNIFIED,
		.instructions = info->type == CACHE_TYPE_INST || info->type == CACHE_TYPE_UNIFIED,
	};
	for_each_cpu(sharer, &info->shared_cpu_map) {
		unsigned int bit = hardware_id(sharer) - out->processor;

		if (bit < 8 * sizeof(out->sharers))
			out->sharers[bit / 8] |= 1 << bit % 8;
	}
}

/*
 * Cache @index of @cpu. The caches of a CPU are no symbol for modules, but each has a device, whose data
 * they are and which stays as long as the CPU is online.
 *
 * Returns 1, 0 if another CPU has already been told of the cache, which both share, -ENOENT if there is no
 * such cache.
 */
int rkfd_cpu_cache(unsigned int cpu, unsigned int index, struct rkfd_cpu_cache_info *out)
{
	struct device *parent = NULL, *dev = NULL;
	const struct cacheinfo *info;
	int ret = -ENOENT;

	cpus_read_lock();
	if (cpu_online(cpu) && get_cpu_device(cpu))
		parent = device_find_child_by_name(get_cpu_device(cpu), "cache");
	if (parent)
		dev = device_find_child(parent, &index, is_index);
	info = dev ? dev_get_drvdata(dev) : NULL;
	if (info) {
		ret = cpumask_first(&info->shared_cpu_map) == cpu;
		if (ret)
			describe_cache(info, cpu, out);
	}
	put_device(dev);
	put_device(parent);
	cpus_read_unlock();
	return ret;
}

u64 rkfd_node_memory(int node)
{
	pg_data_t *pgdat = NODE_DATA(node);
	u64 pages = 0;
	int zone;

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		pages += zone_managed_pages(&pgdat->node_zones[zone]);
	return pages << PAGE_SHIFT;
}

unsigned int rkfd_cpu_clock_mhz(void)
{
	unsigned int khz = cpufreq_quick_get_max(0);

#ifdef CONFIG_X86
	if (!khz)
		khz = cpu_khz;
#endif
	return khz / 1000;
}

bool rkfd_cpu_is_amd(void)
{
#ifdef CONFIG_X86
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD;
#else
	return false;
#endif
}

int rkfd_pci_numa_node(struct pci_dev *pdev)
{
	return dev_to_node(&pdev->dev);
}

unsigned int rkfd_pci_bandwidth(struct pci_dev *pdev)
{
	/* The PCI core counts megabits. */
	return pci_is_pcie(pdev) ? pcie_bandwidth_available(pdev, NULL, NULL, NULL) / 8 : 0;
}

bool rkfd_pci_enable_atomics(struct pci_dev *pdev)
{
	return !pci_enable_atomic_ops_to_root(pdev, PCI_EXP_DEVCAP2_ATOMIC_COMP32 |
						    PCI_EXP_DEVCAP2_ATOMIC_COMP64);
}

bool rkfd_pci_completes_atomics(struct pci_dev *pdev)
{
	u32 cap = 0;

	pcie_capability_read_dword(pdev, PCI_EXP_DEVCAP2, &cap);
	return cap & (PCI_EXP_DEVCAP2_ATOMIC_COMP32 | PCI_EXP_DEVCAP2_ATOMIC_COMP64);
}
