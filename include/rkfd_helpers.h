/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Out-of-line forms of inline functions and macros that Rust cannot call. One line each; the
 * definitions are in helpers.c. Every name starts with rkfd_ and is thereby on the allow list.
 */
#ifndef RKFD_HELPERS_H
#define RKFD_HELPERS_H

#include <linux/dma-direction.h>
#include <linux/types.h>

struct attribute;
struct cdev;
struct device;
struct dmem_cgroup_pool_state;
struct dmem_cgroup_region;
struct dma_fence;
struct drm_device;
struct drm_exec;
struct drm_file;
struct drm_gem_lru;
struct drm_gem_object;
struct inode;
struct mem_cgroup;
struct mm_struct;
struct mmu_interval_notifier;
struct mmu_notifier_range;
struct page;
struct pci_dev;
struct rkfd_pagemap;
struct sg_table;
struct task_struct;
struct vm_area_struct;
struct vm_fault;

int rkfd_pci_domain_nr(struct pci_dev *pdev);
void rkfd_kunit_skip(const char *reason);
unsigned long rkfd_kunit_map_user(unsigned long addr, size_t len, bool writable);
void rkfd_kunit_unmap_user(unsigned long addr, size_t len);
struct file *rkfd_kunit_file(const struct file_operations *ops, void *data, struct address_space *mapping);
unsigned long rkfd_kunit_map_file(struct file *file, size_t len, bool writable, bool shared,
				  unsigned long offset);
void rkfd_kunit_kill(void);
void rkfd_kunit_clear_signals(void);
struct task_struct *rkfd_kunit_thread(void);
void rkfd_kunit_thread_end(struct task_struct *task);
int rkfd_kunit_irq_alloc(void);
int rkfd_kunit_irq_raise(unsigned int irq);
void rkfd_kunit_irq_free(unsigned int irq);
int rkfd_kunit_module_references(void);
bool rkfd_kunit_region_is_free(u64 start, u64 size);
bool rkfd_kunit_has_device_page(u64 address);
const char *rkfd_force_probe(void);
const char *rkfd_reserved_vram(void);

/* /dev/kfd */
bool rkfd_class_exists(const char *name);
bool rkfd_in_compat_syscall(void);
bool rkfd_access_ok(u64 addr, u64 len);
int rkfd_tgid_of(int nr);
void rkfd_task_comm(struct task_struct *task, char *comm);
bool rkfd_same_process(struct task_struct *one, struct task_struct *other);
bool rkfd_process_ended(struct task_struct *task);
unsigned int rkfd_jiffies_to_msecs(unsigned long jiffies);
void rkfd_sysfs_attr_init(struct attribute *attr);
void rkfd_vma_set_io(struct vm_area_struct *vma, bool never_write);
struct cdev *rkfd_inode_cdev(struct inode *inode);
struct inode *rkfd_inode_new(void);
void rkfd_inode_free(struct inode *inode);

/* The machine. */
int rkfd_next_online_node(int after);
unsigned int rkfd_node_cpus(int node);
unsigned int rkfd_node_first_cpu_id(int node);

/* A cache of a CPU. */
struct rkfd_cpu_cache_info {
	unsigned int processor;		/* hardware id of the first CPU that has it */
	unsigned int level;
	unsigned int size;		/* bytes */
	unsigned int line;		/* bytes */
	unsigned int lines_per_tag;
	unsigned int ways;
	bool data;
	bool instructions;
	u8 sharers[32];			/* bit n: the CPU with hardware id processor + n has it, too */
};

int rkfd_next_cpu_of_node(int node, int after);
int rkfd_cpu_cache(unsigned int cpu, unsigned int index, struct rkfd_cpu_cache_info *out);
u64 rkfd_node_memory(int node);
unsigned int rkfd_cpu_clock_mhz(void);
bool rkfd_cpu_is_amd(void);
int rkfd_pci_numa_node(struct pci_dev *pdev);
unsigned int rkfd_pci_bandwidth(struct pci_dev *pdev);
bool rkfd_pci_enable_atomics(struct pci_dev *pdev);
bool rkfd_pci_completes_atomics(struct pci_dev *pdev);

/* Memory: pages, DMA and user mappings. */

/* How a user mapping is cached. */
enum {
	RKFD_CACHED,
	RKFD_WRITE_COMBINED,
	RKFD_UNCACHED,
};

struct page *rkfd_alloc_pages(unsigned int order);
unsigned long rkfd_page_to_pfn(struct page *page);
void *rkfd_vmap(struct page **pages, unsigned int count);
void rkfd_vunmap(void *addr);
int rkfd_dma_map_resource(struct device *dev, phys_addr_t addr, size_t size, dma_addr_t *out);
void rkfd_dma_unmap_resource(struct device *dev, dma_addr_t addr, size_t size);
bool rkfd_dma_bounces(struct device *dev);
void rkfd_dma_unmap_unsynced(struct device *dev, struct sg_table *table,
			      enum dma_data_direction direction);
void rkfd_vma_prepare(struct vm_area_struct *vma, int caching, bool never_write);
u64 rkfd_total_ram(void);
bool rkfd_fatal_signal_pending(void);

/* Memory control groups. */
void rkfd_memcg_put(struct mem_cgroup *memcg);
struct mem_cgroup *rkfd_memcg_set_active(struct mem_cgroup *memcg);

/* Control groups of device memory. In a kernel without them the region is NULL, and so is what is charged. */
struct dmem_cgroup_region *rkfd_dmem_register(const char *name, u64 size);
void rkfd_dmem_unregister(struct dmem_cgroup_region *region);
int rkfd_dmem_charge(struct dmem_cgroup_region *region, u64 size, struct dmem_cgroup_pool_state **pool,
		     struct dmem_cgroup_pool_state **limit);
void rkfd_dmem_uncharge(struct dmem_cgroup_pool_state *pool, u64 size);
void rkfd_dmem_put(struct dmem_cgroup_pool_state *pool);
bool rkfd_dmem_evictable(struct dmem_cgroup_pool_state *limit, struct dmem_cgroup_pool_state *victim,
			 bool ignore_low, bool *hit_low);
bool rkfd_dmem_is_root(void);

/* Device-private memory; include/devmem.c. */
bool rkfd_module_get(void);
void rkfd_module_put(void);
struct rkfd_pagemap *rkfd_pagemap_new(u64 size);
void rkfd_pagemap_attach(struct rkfd_pagemap *pagemap,
			 void (*freed)(void *data, unsigned long first, unsigned long count),
			 unsigned int (*fault)(void *data, struct vm_fault *vmf), void *data);
void rkfd_pagemap_delete(struct rkfd_pagemap *pagemap);
u64 rkfd_pagemap_start(struct rkfd_pagemap *pagemap);
bool rkfd_pagemap_exists(void);
bool rkfd_device_page_is_used(struct rkfd_pagemap *pagemap, unsigned long number);
struct page *rkfd_device_page(struct rkfd_pagemap *pagemap, unsigned long number);
unsigned long rkfd_device_page_number(struct page *page);
void rkfd_page_unlock_put(struct page *page);

/* Moves of pages; include/migrate.c. */

/*
 * What is moved: a range of a mapping, or, where vma is NULL, pages of a device, of whatever programs, whose frame numbers are
 * in from before the setup.
 */
struct rkfd_migrate_info {
	struct vm_area_struct *vma;
	unsigned long start;
	unsigned long end;
	unsigned long pages;		/* from start to end */
	unsigned long *from;		/* a word for each page: where it is, and whether it moves */
	unsigned long *to;		/* likewise: its destination, or 0 */
	struct rkfd_pagemap *pagemap;
	struct page *fault;		/* whose fault is being handled, or NULL */
	bool out;			/* from the device to the system */
};

int rkfd_migrate_setup(struct rkfd_migrate_info *info);
void rkfd_migrate_commit(struct rkfd_migrate_info *info);
void rkfd_migrate_finish(struct rkfd_migrate_info *info);
bool rkfd_migrate_moves(unsigned long word);
bool rkfd_migrate_is_merged(unsigned long word);
bool rkfd_migrate_may_leave(struct vm_area_struct *vma);
struct page *rkfd_migrate_page(unsigned long word);
unsigned long rkfd_migrate_word(struct page *page);
struct page *rkfd_migrate_alloc(struct vm_area_struct *vma, unsigned long address, bool effort);
void rkfd_fault_range(struct vm_fault *vmf, unsigned long around, struct rkfd_migrate_info *info);
unsigned long rkfd_fault_address(struct vm_fault *vmf);
void rkfd_page_get(struct page *page);
void rkfd_page_put(struct page *page);

/* Objects that a DRM file has handles of; each must not sleep. */
void rkfd_drm_for_each_object(struct drm_file *file, void (*each)(struct drm_gem_object *obj, void *data),
			      void *data);
bool rkfd_drm_object_is_shared(struct drm_gem_object *obj);

/* Reservations. */
void rkfd_exec_init(struct drm_exec *exec, bool interruptible, unsigned int room);
unsigned int rkfd_fault_reserve(struct vm_fault *vmf, struct drm_gem_object *obj);
unsigned int rkfd_fault_insert(struct vm_area_struct *vma, unsigned long addr, unsigned long pfn,
			       int caching);
void rkfd_gem_zap(struct drm_gem_object *obj);
unsigned int rkfd_lru_take(struct drm_device *dev, struct drm_gem_lru *lru,
			   struct drm_gem_object **objects, unsigned int room);

/* Fences. */
void rkfd_fence_get(struct dma_fence *fence);
void rkfd_fence_put(struct dma_fence *fence);
bool rkfd_fence_begin_signalling(void);
void rkfd_fence_end_signalling(bool cookie);

/* Pages of a process. */

/* What a program has somewhere: nothing, what no device may use, or memory that it may read, and write. */
enum {
	RKFD_MEMORY_NONE,
	RKFD_MEMORY_UNUSABLE,
	RKFD_MEMORY_READABLE,
	RKFD_MEMORY_WRITABLE,
};

/* What is to be found: the pages that are there, or each page, to be read or written. */
enum {
	RKFD_FIND_PRESENT,
	RKFD_FIND_READABLE,
	RKFD_FIND_WRITABLE,
};

/* Why pages change. */
enum {
	RKFD_CHANGE_UNMAP,
	RKFD_CHANGE_CLEAR,
	RKFD_CHANGE_PROTECT,
	RKFD_CHANGE_SOFT_DIRTY,
	RKFD_CHANGE_END,
	RKFD_CHANGE_MIGRATE,
	RKFD_CHANGE_EXCLUSIVE,
	RKFD_CHANGE_OTHER,
};

int rkfd_user_fault(struct mmu_interval_notifier *sub, unsigned long start, unsigned long end,
		    unsigned int find, struct rkfd_pagemap *owner, unsigned long *frames,
		    unsigned long *seq);
struct page *rkfd_user_page(unsigned long frame);
bool rkfd_frame_is_present(unsigned long frame);
bool rkfd_frame_is_writable(unsigned long frame);
unsigned long rkfd_frame_number(unsigned long frame);
bool rkfd_frame_is_zero(unsigned long frame);
unsigned int rkfd_user_memory(struct mm_struct *mm, unsigned long start, unsigned long *end);
void rkfd_mark_dirty(struct page **pages, unsigned long count);
void rkfd_interval_set_seq(struct mmu_interval_notifier *sub, unsigned long seq);
bool rkfd_interval_changed(struct mmu_interval_notifier *sub, unsigned long seq);
bool rkfd_interval_may_block(const struct mmu_notifier_range *range);
bool rkfd_current_changes(const struct mm_struct *mm);
bool rkfd_interval_is_end(const struct mmu_notifier_range *range);
bool rkfd_interval_is_unmap(const struct mmu_notifier_range *range);
unsigned int rkfd_interval_cause(const struct mmu_notifier_range *range);
bool rkfd_user_has_memory(struct mm_struct *mm, unsigned long start, unsigned long end);
bool rkfd_user_is_heap_or_stack(struct mm_struct *mm, unsigned long address);
unsigned long rkfd_interval_start(const struct mmu_notifier_range *range);
unsigned long rkfd_interval_end(const struct mmu_notifier_range *range);

#endif /* RKFD_HELPERS_H */
