/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * SVM of /dev/kfd: attributes of ranges of the program's memory.
 *
 * Functions that make one call return 0 or its errno. Others end the case when they fail.
 */
#ifndef ATTRIBUTES_H
#define ATTRIBUTES_H

#include "kfd.h"

#define PREFERRED KFD_IOCTL_SVM_ATTR_PREFERRED_LOC
#define PREFETCH KFD_IOCTL_SVM_ATTR_PREFETCH_LOC
#define ACCESS KFD_IOCTL_SVM_ATTR_ACCESS
#define IN_PLACE KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE
#define NO_ACCESS KFD_IOCTL_SVM_ATTR_NO_ACCESS
#define SET_FLAGS KFD_IOCTL_SVM_ATTR_SET_FLAGS
#define CLR_FLAGS KFD_IOCTL_SVM_ATTR_CLR_FLAGS
#define GRANULARITY KFD_IOCTL_SVM_ATTR_GRANULARITY
#define SET KFD_IOCTL_SVM_OP_SET_ATTR
#define GET KFD_IOCTL_SVM_OP_GET_ATTR
#define DEFAULT_FLAGS (KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT)
#define UNDEFINED KFD_IOCTL_SVM_LOCATION_UNDEFINED

#define MAX_ATTRS 8

struct attr {
	uint32_t type, value;
};

/* One call with at most MAX_ATTRS attributes, which are as the call leaves them. */
int svm_call(const struct gpu *gpu, uint32_t op, const volatile void *at, uint64_t size, struct attr *attr, uint32_t n);
/* Sets one. */
int svm_set(const struct gpu *gpu, const volatile void *at, uint64_t size, uint32_t type, uint32_t value);
/* What is reported of one that has no GPU. */
uint32_t svm_get(const struct gpu *gpu, const volatile void *at, uint64_t size, uint32_t type);
/* How the GPU may access it: ACCESS, IN_PLACE or NO_ACCESS. */
uint32_t svm_access(const struct gpu *gpu, const volatile void *at, uint64_t size);

/* Skips the case where a driver has no SVM. The GPU is bound. */
void need_svm_of(const struct gpu *gpu);

/* Has accesses of the process repeated, or not. Before its first queue; EPERM where a GPU cannot repeat them. */
int set_xnack(const struct gpu *gpu, bool on);

#endif
