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

struct smi_move smi_next_move(int fd)
{
	const char *line = smi_next_line(fd);
	char wanted[2 * KFD_SMI_EVENT_MSG_SIZE];
	struct smi_move move = { 0 };
	int pid, at = 0, n;

	CHECK_EQ(sscanf(line, "%x %" SCNu64 " -%d @%" SCNx64 "(%" SCNx64 ") %x->%x%n", &move.event, &move.ns, &pid, &move.start,
			&move.size, &move.from, &move.to, &at), 7);
	CHECK_EQ(pid, getpid());
	n = snprintf(wanted, sizeof(wanted), "%x %" PRIu64 " -%d @%" PRIx64 "(%" PRIx64 ") %x->%x ", move.event, move.ns, pid,
		     move.start, move.size, move.from, move.to);
	if (move.event == KFD_SMI_EVENT_MIGRATE_START) {
		CHECK_EQ(sscanf(line + at, " %x:%x %u", &move.prefetch, &move.preferred, &move.trigger), 3);
		snprintf(wanted + n, sizeof(wanted) - n, "%x:%x %u\n", move.prefetch, move.preferred, move.trigger);
	} else {
		CHECK_EQ(move.event, KFD_SMI_EVENT_MIGRATE_END);
		CHECK_EQ(sscanf(line + at, " %u %d", &move.trigger, &move.error), 2);
		snprintf(wanted + n, sizeof(wanted) - n, "%u %d\n", move.trigger, move.error);
	}
	smi_check_text(line, wanted);
	return move;
}

unsigned int smi_moves(int fd, struct smi_move *begins, struct smi_move *ends, unsigned int most)
{
	unsigned int pairs = 0;

	while (smi_is_readable(fd)) {
		struct smi_move begin = smi_next_move(fd), end = smi_next_move(fd);

		CHECK_EQ(begin.event, KFD_SMI_EVENT_MIGRATE_START);
		CHECK_EQ(end.event, KFD_SMI_EVENT_MIGRATE_END);
		CHECK_EQ(end.start, begin.start);
		CHECK_EQ(end.size, begin.size);
		CHECK_EQ(end.from, begin.from);
		CHECK_EQ(end.to, begin.to);
		CHECK_EQ(end.trigger, begin.trigger);
		CHECK_OP(end.ns, >=, begin.ns);
		CHECK_OP(begin.size, >, 0);
		if (pairs < most) {
			begins[pairs] = begin;
			ends[pairs] = end;
		}
		pairs++;
	}
	return pairs;
}

uint64_t boot_ns(void)
{
	struct timespec t;

	CHECK_EQ(clock_gettime(CLOCK_BOOTTIME, &t), 0);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}
