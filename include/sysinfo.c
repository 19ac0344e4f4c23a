// SPDX-License-Identifier: GPL-2.0
/*
 * Facts about the machine that only inline functions and macros tell.
 */

#include <linux/cpufreq.h>
#include <linux/cpumask.h>
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

unsigned int rkfd_node_first_cpu_id(int node)
{
	unsigned int cpu = cpumask_first(cpumask_of_node(node));

	if (cpu >= nr_cpu_ids)
		return 0;
#ifdef CONFIG_X86
	return cpu_data(cpu).topo.apicid;
#else
	return cpu;
#endif
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
