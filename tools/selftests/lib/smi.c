// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "smi.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int smi_open(const struct gpu *gpu, uint32_t id, int *fd)
{
	struct kfd_ioctl_smi_events_args args = { .gpuid = id, .anon_fd = 0xffffffff };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_SMI_EVENTS, &args);

	*fd = args.anon_fd;
	return err;
}

int need_smi(const struct gpu *gpu, uint64_t events)
{
	int fd, err = smi_open(gpu, gpu->id, &fd);

	if (err) {
		CHECK_EQ(fd, -1);
		CHECK_ERR(err, EOPNOTSUPP);
		SKIP("no SMI events here (%s)", tap_errno(err));
	}
	if (events)
		CHECK_EQ(write(fd, &events, sizeof(events)), sizeof(events));
	return fd;
}

const char *smi_next_line(int fd)
{
	static char line[2 * KFD_SMI_EVENT_MSG_SIZE];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	do {
		CHECK_OP(n, <, KFD_SMI_EVENT_MSG_SIZE);
		CHECK_EQ(poll(&p, 1, tap_ms(30000)), 1);
		CHECK_EQ(p.revents, POLLIN);
		CHECK_EQ(read(fd, line + n, 1), 1);
	} while (line[n++] != '\n');
	line[n] = 0;
	return line;
}

bool smi_is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

void smi_check_empty(int fd)
{
	char byte;

	CHECK(!smi_is_readable(fd));
	CHECK_EQ(read(fd, &byte, 1), -1);
	CHECK_EQ(errno, EAGAIN);
}

void smi_check_text(const char *found, const char *wanted)
{
	if (strcmp(found, wanted))
		FAIL("\"%s\" instead of \"%s\"", found, wanted);
}

const char *smi_timed(const char *line, unsigned int event, uint64_t *ns)
{
	static char rest[64];
	unsigned int found;
	int pid;

	CHECK_EQ(sscanf(line, "%x %" SCNu64 " -%d %63[^\n]", &found, ns, &pid, rest), 4);
	CHECK_EQ(found, event);
	CHECK_EQ(pid, getpid());
	return rest;
}

uint64_t boot_ns(void)
{
	struct timespec t;

	CHECK_EQ(clock_gettime(CLOCK_BOOTTIME, &t), 0);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}
