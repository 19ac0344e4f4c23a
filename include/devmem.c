// SPDX-License-Identifier: GPL-2.0
/*
 * Device-private memory: a struct page for each page of a device's memory, which the CPU does not map; see
 * rust/kapi/devmem.rs. Without CONFIG_DEVICE_PRIVATE there is none.
 */

#include <linux/err.h>
#include <linux/ioport.h>
#include <linux/kconfig.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "rkfd_helpers.h"

/* A reference of the module; false while it is being unloaded. */
bool rkfd_module_get(void)
{
	return try_module_get(THIS_MODULE);
}

void rkfd_module_put(void)
{
	module_put(THIS_MODULE);
}

#ifdef RKFD_KUNIT
int rkfd_kunit_module_references(void)
{
	return module_refcount(THIS_MODULE);
}
#endif

#if IS_ENABLED(CONFIG_DEVICE_PRIVATE)

struct rkfd_pagemap {
	struct dev_pagemap map;
	struct resource *region;	/* may be larger than what is mapped */
	void (*freed)(void *data, unsigned long first, unsigned long count);
	unsigned int (*fault)(void *data, struct vm_fault *vmf);
	void *data;
};

/* Perhaps under a spinlock of a page table. */
static void rkfd_folio_free(struct folio *folio)
{
	struct rkfd_pagemap *pagemap = container_of(folio->pgmap, struct rkfd_pagemap, map);

	pagemap->freed(pagemap->data, folio_pfn(folio) - PHYS_PFN(pagemap->map.range.start),
		       folio_nr_pages(folio));
}

static vm_fault_t rkfd_migrate_to_ram(struct vm_fault *vmf)
{
	struct rkfd_pagemap *pagemap = container_of(page_pgmap(vmf->page), struct rkfd_pagemap, map);

	return (__force vm_fault_t)pagemap->fault(pagemap->data, vmf);
}

static const struct dev_pagemap_ops rkfd_pagemap_ops = {
	.folio_free = rkfd_folio_free,
	.migrate_to_ram = rkfd_migrate_to_ram,
};

/* Pages for @size bytes, a multiple of 2 MiB, at addresses that the machine has nothing at. None of them is in use. */
struct rkfd_pagemap *rkfd_pagemap_new(u64 size)
{
	struct rkfd_pagemap *pagemap = kzalloc(sizeof(*pagemap), GFP_KERNEL);
	void *mapped;

	if (!pagemap)
		return ERR_PTR(-ENOMEM);
	/* The name is not copied. */
	pagemap->region = request_free_mem_region(&iomem_resource, size, "rkfd");
	if (IS_ERR(pagemap->region)) {
		mapped = ERR_CAST(pagemap->region);
		goto free;
	}
	pagemap->map.type = MEMORY_DEVICE_PRIVATE;
	pagemap->map.range.start = pagemap->region->start;
	pagemap->map.range.end = pagemap->region->start + size - 1;
	pagemap->map.nr_range = 1;
	pagemap->map.ops = &rkfd_pagemap_ops;
	pagemap->map.owner = pagemap;
	mapped = memremap_pages(&pagemap->map, NUMA_NO_NODE);
	if (IS_ERR(mapped))
		goto release;
	return pagemap;

release:
	release_mem_region(pagemap->region->start, resource_size(pagemap->region));
free:
	kfree(pagemap);
	return ERR_CAST(mapped);
}

/*
 * From now on @freed is called with the numbers of pages that are not used any more, and must not sleep, and @fault when the
 * CPU touches one, as migrate_to_ram() of a pagemap.
 */
void rkfd_pagemap_attach(struct rkfd_pagemap *pagemap,
			 void (*freed)(void *data, unsigned long first, unsigned long count),
			 unsigned int (*fault)(void *data, struct vm_fault *vmf), void *data)
{
	pagemap->freed = freed;
	pagemap->fault = fault;
	pagemap->data = data;
}

/* Waits until no page is in use, without bound. */
void rkfd_pagemap_delete(struct rkfd_pagemap *pagemap)
{
	memunmap_pages(&pagemap->map);
	release_mem_region(pagemap->region->start, resource_size(pagemap->region));
	kfree(pagemap);
}

/* Physical address of the first page. */
u64 rkfd_pagemap_start(struct rkfd_pagemap *pagemap)
{
	return pagemap->map.range.start;
}

/* Whether the kernel has such memory at all. */
bool rkfd_pagemap_exists(void)
{
	return true;
}

/* Whether programs have page @number, of which the caller has no reference: the answer of a moment. */
bool rkfd_device_page_is_used(struct rkfd_pagemap *pagemap, unsigned long number)
{
	struct page *page = pfn_to_page(PHYS_PFN(pagemap->map.range.start) + number);
	struct folio *folio = page_folio(page);

	/* What a copy engine keeps has been no program's. */
	return folio_ref_count(folio) && folio_test_anon(folio);
}

/* Page @number, which is not in use: locked, and with one reference. */
struct page *rkfd_device_page(struct rkfd_pagemap *pagemap, unsigned long number)
{
	struct page *page = pfn_to_page(PHYS_PFN(pagemap->map.range.start) + number);

	zone_device_folio_init(page_folio(page), &pagemap->map, 0);
	return page;
}

/* The number of a page of a pagemap of this module. */
unsigned long rkfd_device_page_number(struct page *page)
{
	struct rkfd_pagemap *pagemap = container_of(page_pgmap(page), struct rkfd_pagemap, map);

	return page_to_pfn(page) - PHYS_PFN(pagemap->map.range.start);
}

/* Unlocks a page, of the system or of a device, and gives a reference back. */
void rkfd_page_unlock_put(struct page *page)
{
	unlock_page(page);
	put_page(page);
}

#ifdef RKFD_KUNIT
/* Whether the machine has nothing in a range of physical addresses. */
bool rkfd_kunit_region_is_free(u64 start, u64 size)
{
	return region_intersects(start, size, 0, IORES_DESC_NONE) == REGION_DISJOINT;
}

/* Whether the address has a page of a device. */
bool rkfd_kunit_has_device_page(u64 address)
{
	struct dev_pagemap *map = get_dev_pagemap(PHYS_PFN(address));

	put_dev_pagemap(map);
	return map != NULL;
}
#endif

#else /* !CONFIG_DEVICE_PRIVATE: as there is no pagemap, nothing else is called. */

struct rkfd_pagemap *rkfd_pagemap_new(u64 size)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void rkfd_pagemap_attach(struct rkfd_pagemap *pagemap,
			 void (*freed)(void *data, unsigned long first, unsigned long count),
			 unsigned int (*fault)(void *data, struct vm_fault *vmf), void *data)
{
}

void rkfd_pagemap_delete(struct rkfd_pagemap *pagemap)
{
}

u64 rkfd_pagemap_start(struct rkfd_pagemap *pagemap)
{
	return 0;
}

bool rkfd_pagemap_exists(void)
{
	return false;
}

bool rkfd_device_page_is_used(struct rkfd_pagemap *pagemap, unsigned long number)
{
	return false;
}

struct page *rkfd_device_page(struct rkfd_pagemap *pagemap, unsigned long number)
{
	return NULL;
}

unsigned long rkfd_device_page_number(struct page *page)
{
	return 0;
}

void rkfd_page_unlock_put(struct page *page)
{
}

#ifdef RKFD_KUNIT
bool rkfd_kunit_region_is_free(u64 start, u64 size)
{
	return true;
}

bool rkfd_kunit_has_device_page(u64 address)
{
	return false;
}
#endif

#endif
