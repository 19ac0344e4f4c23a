// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "model.h"

#include "kfd.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int control = -1;

void need_model(void)
{
	char path[300], name[64];
	struct dirent *entry;
	DIR *dir = opendir("/sys/class/virtio-ports");

	while (dir && (entry = readdir(dir))) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, name, sizeof(name) - 1);
		close(fd);
		name[n > 0 ? n : 0] = '\0';
		if (strcmp(name, "rkfd.control.0\n"))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		control = open(path, O_RDWR | O_CLOEXEC);
		break;
	}
	if (dir)
		closedir(dir);
	if (control < 0)
		LACKING("no device model to ask");
}

void close_model(void)
{
	close(control);
}

const char *ask_model(const char *request)
{
	static char reply[1 << 20];
	static unsigned int count;
	char id[48], line[512], *end;
	size_t have = 0;
	int length;

	/* One that was killed before it read may have left its answer in the port; the id tells ours. */
	snprintf(id, sizeof(id), "\"id\":\"%d.%u\"", (int)getpid(), ++count);
	CHECK_EQ(*request, '{');
	length = snprintf(line, sizeof(line), "{%s,%s\n", id, request + 1);
	CHECK_OP(length, <, (int)sizeof(line));
	if (write(control, line, length) != length)
		FAIL("the model's control port: %s", strerror(errno));
	for (;;) {
		ssize_t n;

		end = memchr(reply, '\n', have);
		if (end) {
			*end = '\0';
			if (strstr(reply, id))
				break;
			tap_note("the model's answer to somebody else: %.80s", reply);
			have -= end + 1 - reply;
			memmove(reply, end + 1, have);
			continue;
		}
		if (have == sizeof(reply) - 1)
			FAIL("the model's answer is too long");
		n = read(control, reply + have, sizeof(reply) - 1 - have);
		if (n <= 0)
			FAIL("the model's control port: %s", n ? strerror(errno) : "closed");
		have += n;
	}
	if (!strstr(reply, "\"ok\":true"))
		FAIL("%s: %s", request, reply);
	return reply;
}

bool has_doorbell(const char *table, unsigned long doorbell)
{
	const char *key = "\"doorbell\":";

	while ((table = strstr(table, key))) {
		table += strlen(key);
		if (strtoul(table, NULL, 10) == doorbell)
			return true;
	}
	return false;
}

unsigned long new_doorbell(const char *before, const char *now)
{
	const char *key = "\"doorbell\":";

	while ((now = strstr(now, key))) {
		unsigned long doorbell;

		now += strlen(key);
		doorbell = strtoul(now, NULL, 10);
		if (doorbell && !has_doorbell(before, doorbell))
			return doorbell;
	}
	FAIL("the model knows no new queue");
}

bool masters_the_bus(void)
{
	uint16_t command;
	glob_t found;
	int fd;

	CHECK_EQ(glob("/sys/bus/pci/drivers/rkfd/[0-9]*/config", 0, NULL, &found), 0);
	CHECK_EQ(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	CHECK_OP(fd, >=, 0);
	CHECK_EQ(pread(fd, &command, sizeof(command), 4), sizeof(command));
	close(fd);
	globfree(&found);
	return command & 4;
}
