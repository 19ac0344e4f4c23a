// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of a process that follow the process; see rust/kapi/userpages.rs.
 */

#include <linux/hmm.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>

#include "rkfd_helpers.h"

/*
 * Faults in the first page of each part of @range that can be one large page. Where a part is missing, HMM has the
 * kernel handle a fault for each of its pages, 512 of them, though the first one may bring all. Errors are left to
 * who looks for the whole range, and finds the same.
 */
static void fault_large_pages(const struct hmm_range *range, unsigned long timeout)
{
	unsigned long next;

	for (unsigned long at = range->start; at < range->end; at = next) {
		unsigned long frame = 0;
		struct hmm_range first = *range;

		next = pmd_addr_end(at, range->end);
		/* For less than that there is nothing to gain. */
		if (next - at < 16 * PAGE_SIZE)
			continue;
		first.start = at;
		first.end = at + PAGE_SIZE;
		first.hmm_pfns = &frame;
		if (hmm_range_fault_unlocked_timeout(&first, timeout))
			return;
	}
}

/*
 * Stores the frames of the pages of [start, end), which are faulted in as @find (RKFD_FIND_*) says. Pages of @owner, if
 * that is not NULL, are found as they are, also if they may not be written as @find says; those of other devices are as
 * pages that are not there, and come back to the system if they are faulted in. On success *seq tells at which state of
 * the address space that was. The caller keeps the address space from ending.
 */
int rkfd_user_fault(struct mmu_interval_notifier *sub, unsigned long start, unsigned long end,
		    unsigned int find, struct rkfd_pagemap *owner, unsigned long *frames,
		    unsigned long *seq)
{
	static const unsigned long requests[] = {
		[RKFD_FIND_PRESENT] = 0,
		[RKFD_FIND_READABLE] = HMM_PFN_REQ_FAULT,
		[RKFD_FIND_WRITABLE] = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE,
	};
	const unsigned long timeout = msecs_to_jiffies(HMM_RANGE_DEFAULT_TIMEOUT);
	struct hmm_range range = {
		.notifier = sub,
		.start = start,
		.end = end,
		.hmm_pfns = frames,
		.dev_private_owner = owner,
	};
	int ret;

	if (find >= ARRAY_SIZE(requests))
		return -EINVAL;
	range.default_flags = requests[find];
	if (find != RKFD_FIND_PRESENT)
		fault_large_pages(&range, timeout);
	ret = hmm_range_fault_unlocked_timeout(&range, timeout);
	*seq = range.notifier_seq;
	return ret;
}

struct page *rkfd_user_page(unsigned long frame)
{
	return hmm_pfn_to_page(frame);
}

/*
 * Marks pages that the process has mapped as changed, once per folio. The caller holds back their invalidation, so
 * that they are neither truncated nor freed meanwhile. Sleeps nowhere: memory whose pages can be clean and writable
 * at once (anonymous, shmem, hugetlb) has only a flag to set, and what a file system wants to be told of was marked
 * when the process got write permission.
 */
void rkfd_mark_dirty(struct page **pages, unsigned long count)
{
	struct folio *last = NULL;

	for (unsigned long i = 0; i < count; i++) {
		struct folio *folio = page_folio(pages[i]);

		if (folio == last)
			continue;
		last = folio;
		if (!folio_test_dirty(folio))
			folio_mark_dirty(folio);
	}
}

/* The process has the page, and may read it as it is, without a fault. */
bool rkfd_frame_is_present(unsigned long frame)
{
	return (frame & HMM_PFN_VALID) && !(frame & HMM_PFN_ERROR);
}

/* The process may write the page as it is, without a fault. */
bool rkfd_frame_is_writable(unsigned long frame)
{
	return frame & HMM_PFN_WRITE;
}

/* The number of the page frame, of the system or of a device. */
unsigned long rkfd_frame_number(unsigned long frame)
{
	return frame & ~HMM_PFN_FLAGS;
}

/* The page stands for memory that was read and never written. */
bool rkfd_frame_is_zero(unsigned long frame)
{
	return is_zero_pfn(rkfd_frame_number(frame));
}

/*
 * What a program has at start: RKFD_MEMORY_*. *end, which lies above start, is lowered to where that ends. Only a
 * moment's answer: whoever faults pages in finds out again.
 */
unsigned int rkfd_user_memory(struct mm_struct *mm, unsigned long start, unsigned long *end)
{
	unsigned int memory = RKFD_MEMORY_NONE;
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	vma = find_vma(mm, start);
	if (vma && vma->vm_start > start) {
		*end = min(*end, vma->vm_start);
	} else if (vma) {
		*end = min(*end, vma->vm_end);
		if (vma->vm_flags & (VM_IO | VM_PFNMAP) || !(vma->vm_flags & VM_READ))
			memory = RKFD_MEMORY_UNUSABLE;
		else if (vma->vm_flags & VM_WRITE)
			memory = RKFD_MEMORY_WRITABLE;
		else
			memory = RKFD_MEMORY_READABLE;
	}
	mmap_read_unlock(mm);
	return memory;
}

void rkfd_interval_set_seq(struct mmu_interval_notifier *sub, unsigned long seq)
{
	mmu_interval_set_seq(sub, seq);
}

bool rkfd_interval_changed(struct mmu_interval_notifier *sub, unsigned long seq)
{
	return mmu_interval_read_retry(sub, seq);
}

bool rkfd_interval_may_block(const struct mmu_notifier_range *range)
{
	return mmu_notifier_range_blockable(range);
}

/* The caller is a thread of the address space that does what it was told to, not reclaim on the way. */
bool rkfd_current_changes(const struct mm_struct *mm)
{
	return current->mm == mm && !(current->flags & (PF_KTHREAD | PF_MEMALLOC));
}

/* The whole address space ends. */
bool rkfd_interval_is_end(const struct mmu_notifier_range *range)
{
	return range->event == MMU_NOTIFY_RELEASE;
}

/* The program unmaps it. Moving it (mremap) counts, too, for there is nothing left where it was. */
bool rkfd_interval_is_unmap(const struct mmu_notifier_range *range)
{
	return range->event == MMU_NOTIFY_UNMAP;
}

/* Why the pages change (RKFD_CHANGE_*). */
unsigned int rkfd_interval_cause(const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
		return RKFD_CHANGE_UNMAP;
	case MMU_NOTIFY_CLEAR:
		return RKFD_CHANGE_CLEAR;
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
		return RKFD_CHANGE_PROTECT;
	case MMU_NOTIFY_SOFT_DIRTY:
		return RKFD_CHANGE_SOFT_DIRTY;
	case MMU_NOTIFY_RELEASE:
		return RKFD_CHANGE_END;
	case MMU_NOTIFY_MIGRATE:
		return RKFD_CHANGE_MIGRATE;
	case MMU_NOTIFY_EXCLUSIVE:
		return RKFD_CHANGE_EXCLUSIVE;
	}
	return RKFD_CHANGE_OTHER;
}

/* Whether the program has something in all of a range that is memory of the kernel's, whatever its rights are. */
bool rkfd_user_has_memory(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	VMA_ITERATOR(vmi, mm, start);
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	for_each_vma_range(vmi, vma, end) {
		if (vma->vm_start > start || vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP))
			break;
		start = vma->vm_end;
	}
	mmap_read_unlock(mm);
	return start >= end;
}

/* Whether an address is of the heap (brk) of a program, or of the stack of its first thread. */
bool rkfd_user_is_heap_or_stack(struct mm_struct *mm, unsigned long address)
{
	struct vm_area_struct *vma;
	bool found;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, address);
	found = vma && (vma_is_initial_heap(vma) || vma_is_initial_stack(vma));
	mmap_read_unlock(mm);
	return found;
}

/* First address that changes, and the first one above. */
unsigned long rkfd_interval_start(const struct mmu_notifier_range *range)
{
	return range->start;
}

unsigned long rkfd_interval_end(const struct mmu_notifier_range *range)
{
	return range->end;
}
