// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line forms of inline functions and macros for the Rust side; see rkfd_helpers.h.
 */

#include <drm/drm_device.h>
#include <drm/drm_exec.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_vma_manager.h>
#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/anon_inodes.h>
#include <linux/cgroup.h>
#include <linux/cgroup_dmem.h>
#include <linux/compat.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/gfp.h>
#include <linux/idr.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/pci.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "rkfd_helpers.h"

void rkfd_drm_for_each_object(struct drm_file *file, void (*each)(struct drm_gem_object *obj, void *data),
			      void *data)
{
	struct drm_gem_object *obj;
	int id;

	spin_lock(&file->table_lock);
	idr_for_each_entry(&file->object_idr, obj, id)
		each(obj, data);
	spin_unlock(&file->table_lock);
}

bool rkfd_drm_object_is_shared(struct drm_gem_object *obj)
{
	return drm_gem_object_is_shared_for_memory_stats(obj);
}

/* Without CGROUP_DMEM these are inline functions that do nothing. */

struct dmem_cgroup_region *rkfd_dmem_register(const char *name, u64 size)
{
	const struct dmem_cgroup_init init = { .size = size };

	return dmem_cgroup_register_region(&init, "%s", name);
}

void rkfd_dmem_unregister(struct dmem_cgroup_region *region)
{
	dmem_cgroup_unregister_region(region);
}

int rkfd_dmem_charge(struct dmem_cgroup_region *region, u64 size, struct dmem_cgroup_pool_state **pool,
		     struct dmem_cgroup_pool_state **limit)
{
	return dmem_cgroup_try_charge(region, size, pool, limit);
}

void rkfd_dmem_uncharge(struct dmem_cgroup_pool_state *pool, u64 size)
{
	dmem_cgroup_uncharge(pool, size);
}

void rkfd_dmem_put(struct dmem_cgroup_pool_state *pool)
{
	dmem_cgroup_pool_state_put(pool);
}

bool rkfd_dmem_evictable(struct dmem_cgroup_pool_state *limit, struct dmem_cgroup_pool_state *victim,
			 bool ignore_low, bool *hit_low)
{
	return dmem_cgroup_state_evict_valuable(limit, victim, ignore_low, hit_low);
}

bool rkfd_dmem_is_root(void)
{
#if IS_ENABLED(CONFIG_CGROUP_DMEM)
	bool root;

	rcu_read_lock();
	root = !task_css(current, dmem_cgrp_id)->parent;
	rcu_read_unlock();
	return root;
#else
	return true;
#endif
}

/* The flags are no constants that bindgen knows. */
void rkfd_exec_init(struct drm_exec *exec, bool interruptible, unsigned int room)
{
	u32 flags = DRM_EXEC_IGNORE_DUPLICATES;

	if (interruptible)
		flags |= DRM_EXEC_INTERRUPTIBLE_WAIT;
	drm_exec_init(exec, flags, room);
}

/*
 * Locks the reservation for a fault. 0: it is locked; else what the fault is answered with. Who moves
 * the object may take long, so the mmap lock is not held meanwhile where the fault can be repeated.
 */
unsigned int rkfd_fault_reserve(struct vm_fault *vmf, struct drm_gem_object *obj)
{
	if (dma_resv_trylock(obj->resv))
		return 0;
	if (!fault_flag_allow_retry_first(vmf->flags))
		return dma_resv_lock_interruptible(obj->resv, NULL) ? VM_FAULT_NOPAGE : 0;
	if (!(vmf->flags & FAULT_FLAG_RETRY_NOWAIT)) {
		/* The mapping, which has the other reference, may go with the lock. */
		drm_gem_object_get(obj);
		mmap_read_unlock(vmf->vma->vm_mm);
		if (!dma_resv_lock_interruptible(obj->resv, NULL))
			dma_resv_unlock(obj->resv);
		drm_gem_object_put(obj);
	}
	return VM_FAULT_RETRY;
}

void rkfd_gem_zap(struct drm_gem_object *obj)
{
	drm_vma_node_unmap(&obj->vma_node, obj->dev->anon_inode->i_mapping);
}

unsigned int rkfd_lru_take(struct drm_device *dev, struct drm_gem_lru *lru,
			   struct drm_gem_object **objects, unsigned int room)
{
	struct drm_gem_object *obj;
	unsigned int count = 0;

	mutex_lock(&dev->gem_lru_mutex);
	list_for_each_entry(obj, &lru->list, lru_node) {
		if (count == room)
			break;
		/* One that is ending waits for the lock to leave the list. */
		if (kref_get_unless_zero(&obj->refcount))
			objects[count++] = obj;
	}
	mutex_unlock(&dev->gem_lru_mutex);
	return count;
}

void rkfd_fence_get(struct dma_fence *fence)
{
	dma_fence_get(fence);
}

void rkfd_fence_put(struct dma_fence *fence)
{
	dma_fence_put(fence);
}

/* Without lockdep these two do nothing and are no functions. */
bool rkfd_fence_begin_signalling(void)
{
	return dma_fence_begin_signalling();
}

void rkfd_fence_end_signalling(bool cookie)
{
	dma_fence_end_signalling(cookie);
}

int rkfd_pci_domain_nr(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus);
}

/* Marks the running test as skipped; it goes on and should return. */
void rkfd_kunit_skip(const char *reason)
{
	struct kunit *test = kunit_get_current_test();

	if (test)
		kunit_mark_skipped(test, "%s", reason);
}

#ifdef RKFD_KUNIT
/* Maps private anonymous memory for the running test, which gets an address space for it; 0 if that fails. */
unsigned long rkfd_kunit_map_user(unsigned long addr, size_t len, bool writable)
{
	struct kunit *test = kunit_get_current_test();
	unsigned long flags = MAP_ANONYMOUS | MAP_PRIVATE;
	unsigned long found;

	if (!test)
		return 0;
	if (addr)
		flags |= MAP_FIXED_NOREPLACE;
	found = kunit_vm_mmap(test, NULL, addr, len, PROT_READ | (writable ? PROT_WRITE : 0), flags, 0);
	return IS_ERR_VALUE(found) ? 0 : found;
}

/* A file with these operations that no path leads to; it owns data once it is made. Without a mapping it has no pages. */
struct file *rkfd_kunit_file(const struct file_operations *ops, void *data, struct address_space *mapping)
{
	struct file *file = anon_inode_getfile("rkfd-kunit", ops, data, O_RDWR);

	if (!IS_ERR(file) && mapping)
		file->f_mapping = mapping;
	return file;
}

/* Maps a file for the running test as a program would; an error number in the address where that fails. */
unsigned long rkfd_kunit_map_file(struct file *file, size_t len, bool writable, bool shared, unsigned long offset)
{
	struct kunit *test = kunit_get_current_test();

	if (!test)
		return -EINVAL;
	return kunit_vm_mmap(test, file, 0, len, PROT_READ | (writable ? PROT_WRITE : 0),
			     shared ? MAP_SHARED : MAP_PRIVATE, offset);
}

void rkfd_kunit_unmap_user(unsigned long addr, size_t len)
{
	vm_munmap(addr, len);
}

/* Makes a fatal signal pending for the running test, whose thread of the kernel takes none otherwise. */
void rkfd_kunit_kill(void)
{
	allow_signal(SIGKILL);
	send_sig(SIGKILL, current, 1);
}

/* Takes it away again. */
void rkfd_kunit_clear_signals(void)
{
	disallow_signal(SIGKILL);
	flush_signals(current);
}

static int rkfd_kunit_thread_main(void *unused)
{
	return 0;
}

/* A thread of the kernel that was not started, with a reference; an error pointer where there is none. */
struct task_struct *rkfd_kunit_thread(void)
{
	struct task_struct *task = kthread_create(rkfd_kunit_thread_main, NULL, "rkfd_kunit");

	return IS_ERR(task) ? task : get_task_struct(task);
}

/* Ends it, and waits until it has ended. The reference is still the caller's. */
void rkfd_kunit_thread_end(struct task_struct *task)
{
	kthread_stop(task);
}

/* An interrupt that no device sends; a negative error number where there is none left. */
int rkfd_kunit_irq_alloc(void)
{
	int irq = irq_alloc_desc(NUMA_NO_NODE);

	if (irq >= 0)
		irq_set_chip_and_handler(irq, &dummy_irq_chip, handle_simple_irq);
	return irq;
}

/* Sends it: runs its handler with interrupts disabled, here. */
int rkfd_kunit_irq_raise(unsigned int irq)
{
	return generic_handle_irq_safe(irq);
}

void rkfd_kunit_irq_free(unsigned int irq)
{
	irq_free_desc(irq);
}
#endif

bool rkfd_in_compat_syscall(void)
{
	return in_compat_syscall();
}

bool rkfd_access_ok(u64 addr, u64 len)
{
	return access_ok((void __user *)(uintptr_t)addr, len);
}

unsigned int rkfd_jiffies_to_msecs(unsigned long jiffies)
{
	return jiffies_to_msecs(jiffies);
}

void rkfd_sysfs_attr_init(struct attribute *attr)
{
	sysfs_attr_init(attr);
}

/* Device memory: uncached, never encrypted, not inherited, not dumped, never grown. */
void rkfd_vma_set_io(struct vm_area_struct *vma, bool never_write)
{
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_NORESERVE |
			  VM_DONTDUMP);
	if (never_write)
		vm_flags_clear(vma, VM_MAYWRITE);
	vma->vm_page_prot = pgprot_decrypted(pgprot_noncached(vma->vm_page_prot));
}

/* Memory: pages, DMA and user mappings. */

struct page *rkfd_alloc_pages(unsigned int order)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	struct page *page;

	/* Large blocks are worth a try, the last page is worth an effort, nothing is worth a kill. */
	page = alloc_pages(gfp | (order ? __GFP_NORETRY : __GFP_RETRY_MAYFAIL), order);
	if (page && order)
		split_page(page, order);
	return page;
}

unsigned long rkfd_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

void *rkfd_vmap(struct page **pages, unsigned int count)
{
	return vmap(pages, count, VM_MAP, PAGE_KERNEL);
}

void rkfd_vunmap(void *addr)
{
	vunmap(addr);
}

int rkfd_dma_map_resource(struct device *dev, phys_addr_t addr, size_t size, dma_addr_t *out)
{
	*out = dma_map_resource(dev, addr, size, DMA_BIDIRECTIONAL, 0);
	return dma_mapping_error(dev, *out);
}

void rkfd_dma_unmap_resource(struct device *dev, dma_addr_t addr, size_t size)
{
	dma_unmap_resource(dev, addr, size, DMA_BIDIRECTIONAL, 0);
}

/* Whether the device may be given a copy of memory instead of the memory. The test is that of mm/hmm.c. */
bool rkfd_dma_bounces(struct device *dev)
{
#ifdef CONFIG_DMA_NEED_SYNC
	if (!dev_dma_skip_sync(dev))
		return true;
#endif
	return dma_addressing_limited(dev);
}

/* Without copying back what the device may have stored. */
void rkfd_dma_unmap_unsynced(struct device *dev, struct sg_table *table,
			      enum dma_data_direction direction)
{
	dma_unmap_sgtable(dev, table, direction, DMA_ATTR_SKIP_CPU_SYNC | DMA_ATTR_REQUIRE_COHERENT);
}

static pgprot_t rkfd_prot(struct vm_area_struct *vma, int caching)
{
	pgprot_t prot = vm_get_page_prot(vma->vm_flags);

	/* Cached is RAM, which is encrypted where the machine does that; all else is the device's. */
	if (caching == RKFD_WRITE_COMBINED)
		return pgprot_decrypted(pgprot_writecombine(prot));
	if (caching == RKFD_UNCACHED)
		return pgprot_decrypted(pgprot_noncached(prot));
	return prot;
}

void rkfd_vma_prepare(struct vm_area_struct *vma, int caching, bool never_write)
{
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	if (never_write)
		vm_flags_clear(vma, VM_MAYWRITE);
	vma->vm_page_prot = rkfd_prot(vma, caching);
}

/* For memory that moves, where the frames of one mapping are not all of one kind. */
unsigned int rkfd_fault_insert(struct vm_area_struct *vma, unsigned long addr, unsigned long pfn,
			       int caching)
{
	return vmf_insert_pfn_prot(vma, addr, pfn, rkfd_prot(vma, caching));
}

u64 rkfd_total_ram(void)
{
	struct sysinfo info;

	si_meminfo(&info);
	return (u64)(info.totalram - info.totalhigh) * info.mem_unit;
}

/* The name of @task, padded with zeros to TASK_COMM_LEN bytes. */
void rkfd_task_comm(struct task_struct *task, char *comm)
{
	char name[TASK_COMM_LEN];

	get_task_comm(name, task);
	memcpy(comm, name, sizeof(name));
}

/* Whether both threads are of one process. */
bool rkfd_same_process(struct task_struct *one, struct task_struct *other)
{
	return same_thread_group(one, other);
}

/* Whether the last thread of the process of @task is ending, or has ended. */
bool rkfd_process_ended(struct task_struct *task)
{
	return atomic_read(&task->signal->live) == 0;
}

/* The process of the thread that the caller's namespace calls @nr, in the initial one; 0 if none. */
int rkfd_tgid_of(int nr)
{
	struct pid *pid = find_get_pid(nr);
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	int tgid = 0;

	if (task) {
		tgid = task_tgid_nr(task);
		put_task_struct(task);
	}
	put_pid(pid);
	return tgid;
}

bool rkfd_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

void rkfd_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

struct mem_cgroup *rkfd_memcg_set_active(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}
