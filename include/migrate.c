// SPDX-License-Identifier: GPL-2.0
/*
 * Moves of a program's pages between system memory and device-private memory; see rust/kapi/migrate.rs. Without
 * CONFIG_DEVICE_PRIVATE nothing moves.
 */

#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kconfig.h>
#include <linux/ksm.h>
#include <linux/memremap.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "rkfd_helpers.h"

void rkfd_page_get(struct page *page)
{
	get_page(page);
}

void rkfd_page_put(struct page *page)
{
	put_page(page);
}

#if IS_ENABLED(CONFIG_DEVICE_PRIVATE)

static struct migrate_vma rkfd_migrate_args(const struct rkfd_migrate_info *info)
{
	return (struct migrate_vma){
		.vma = info->vma,
		.src = info->from,
		.dst = info->to,
		.npages = info->pages,
		.cpages = info->pages,
		.start = info->start,
		.end = info->end,
		/* The owner of a pagemap is the pagemap. */
		.pgmap_owner = info->pagemap,
		.flags = info->out ? MIGRATE_VMA_SELECT_DEVICE_PRIVATE : MIGRATE_VMA_SELECT_SYSTEM,
		.fault_page = info->fault,
	};
}

/*
 * Isolates and locks the pages of a range, so that nobody has them mapped. The caller holds the mmap lock for reading
 * until rkfd_migrate_finish(), which follows if this succeeds; no destination is set. Without a VMA there is no such lock.
 */
int rkfd_migrate_setup(struct rkfd_migrate_info *info)
{
	struct migrate_vma args = rkfd_migrate_args(info);
	int ret;

	if (!info->vma)
		return migrate_device_pfns(info->from, info->pages);
	ret = migrate_vma_setup(&args);
	if (ret)
		return ret;
	/* What the walk has not come to is not moved. */
	info->pages = args.npages;
	info->end = args.end;
	return 0;
}

/* Makes the destinations the pages of the program, where it can. Their contents are complete. */
void rkfd_migrate_commit(struct rkfd_migrate_info *info)
{
	struct migrate_vma args = rkfd_migrate_args(info);

	if (info->vma)
		migrate_vma_pages(&args);
	else
		migrate_device_pages(info->from, info->to, info->pages);
	if (!info->out)
		return;
	/* No bit of a page table says that the device has written them. */
	for (unsigned long i = 0; i < info->pages; i++) {
		struct page *page = migrate_pfn_to_page(info->to[i]);

		if (page && (info->from[i] & MIGRATE_PFN_MIGRATE))
			folio_mark_dirty(page_folio(page));
	}
}

/*
 * Maps the pages again, unlocks them and gives them back: where rkfd_migrate_commit() has moved one its destination, else
 * the page that there was. Before a commit there is no destination.
 */
void rkfd_migrate_finish(struct rkfd_migrate_info *info)
{
	struct migrate_vma args = rkfd_migrate_args(info);

	if (info->vma)
		migrate_vma_finalize(&args);
	else
		migrate_device_finalize(info->from, info->to, info->pages);
}

/* Whether the word of a source says that it moves, or has moved. */
bool rkfd_migrate_moves(unsigned long word)
{
	return word & MIGRATE_PFN_MIGRATE;
}

/* Whether the page of a word is shared by all that have the same content (KSM). */
bool rkfd_migrate_is_merged(unsigned long word)
{
	struct page *page = migrate_pfn_to_page(word);

	return page && folio_test_ksm(page_folio(page));
}

/* Whether pages of a mapping may go to a device: they are anonymous, and neither locked nor such as may be dropped. */
bool rkfd_migrate_may_leave(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma) && !(vma->vm_flags & (VM_SPECIAL | VM_LOCKED | VM_DROPPABLE));
}

/* The page of a word; NULL if there is none. */
struct page *rkfd_migrate_page(unsigned long word)
{
	return migrate_pfn_to_page(word);
}

/* The word of a destination. */
unsigned long rkfd_migrate_word(struct page *page)
{
	return migrate_pfn(page_to_pfn(page));
}

/*
 * A new page for an address, or, without a VMA, for any, locked, with one reference; NULL if there is no memory, without
 * @effort perhaps earlier.
 */
struct page *rkfd_migrate_alloc(struct vm_area_struct *vma, unsigned long address, bool effort)
{
	gfp_t gfp = GFP_HIGHUSER_MOVABLE | (effort ? 0 : __GFP_NORETRY | __GFP_NOWARN);
	struct folio *folio = vma ? vma_alloc_folio(gfp, 0, vma, address) : folio_alloc(gfp, 0);

	if (!folio)
		return NULL;
	folio_lock(folio);
	return folio_page(folio, 0);
}

/* The aligned range of @around bytes about the page of a fault, as far as its VMA goes. */
void rkfd_fault_range(struct vm_fault *vmf, unsigned long around, struct rkfd_migrate_info *info)
{
	unsigned long start = round_down(vmf->address, around);

	info->vma = vmf->vma;
	info->start = max(start, vmf->vma->vm_start);
	info->end = min(start + around, vmf->vma->vm_end);
	info->fault = vmf->page;
	info->out = true;
}

/* The page whose content is missing. */
unsigned long rkfd_fault_address(struct vm_fault *vmf)
{
	return vmf->address & PAGE_MASK;
}

#else /* !CONFIG_DEVICE_PRIVATE: as nothing is set up, nothing else is called. */

int rkfd_migrate_setup(struct rkfd_migrate_info *info)
{
	return -EOPNOTSUPP;
}

void rkfd_migrate_commit(struct rkfd_migrate_info *info)
{
}

void rkfd_migrate_finish(struct rkfd_migrate_info *info)
{
}

bool rkfd_migrate_moves(unsigned long word)
{
	return false;
}

bool rkfd_migrate_is_merged(unsigned long word)
{
	return false;
}

bool rkfd_migrate_may_leave(struct vm_area_struct *vma)
{
	return false;
}

struct page *rkfd_migrate_page(unsigned long word)
{
	return NULL;
}

unsigned long rkfd_migrate_word(struct page *page)
{
	return 0;
}

struct page *rkfd_migrate_alloc(struct vm_area_struct *vma, unsigned long address, bool effort)
{
	return NULL;
}

void rkfd_fault_range(struct vm_fault *vmf, unsigned long around, struct rkfd_migrate_info *info)
{
}

unsigned long rkfd_fault_address(struct vm_fault *vmf)
{
	return 0;
}

#endif
