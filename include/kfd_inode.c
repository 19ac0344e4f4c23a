// SPDX-License-Identifier: GPL-2.0
/*
 * The inode behind every open of /dev/kfd, whatever device node was opened.
 *
 * Mappings of all opens must hang on one address_space, so that the driver can take them away when a
 * GPU goes; a character device has one inode per device node (containers have their own). A
 * file_system_type must be static data, because lockdep keys lie in it: hence C.
 */

#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

#include "rkfd_helpers.h"

#define RKFD_FS_MAGIC 0x726b6664 /* "rkfd" */

static struct vfsmount *rkfd_fs_mount;
static int rkfd_fs_pins;

static int rkfd_fs_init_context(struct fs_context *fc)
{
	return init_pseudo(fc, RKFD_FS_MAGIC) ? 0 : -ENOMEM;
}

/* No owner: the mount is held by the module itself, which would never be free to go. */
static struct file_system_type rkfd_fs_type = {
	.name = "rkfd",
	.init_fs_context = rkfd_fs_init_context,
	.kill_sb = kill_anon_super,
};

/* Returns an inode of its own or an ERR_PTR; give it back with rkfd_inode_free(). */
struct inode *rkfd_inode_new(void)
{
	struct inode *inode;
	int ret;

	ret = simple_pin_fs(&rkfd_fs_type, &rkfd_fs_mount, &rkfd_fs_pins);
	if (ret)
		return ERR_PTR(ret);

	inode = alloc_anon_inode(rkfd_fs_mount->mnt_sb);
	if (IS_ERR(inode))
		simple_release_fs(&rkfd_fs_mount, &rkfd_fs_pins);
	return inode;
}

void rkfd_inode_free(struct inode *inode)
{
	iput(inode);
	simple_release_fs(&rkfd_fs_mount, &rkfd_fs_pins);
}

/* The character device that @inode was opened as. */
struct cdev *rkfd_inode_cdev(struct inode *inode)
{
	return inode->i_cdev;
}
