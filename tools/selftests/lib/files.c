// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void write_text(const char *directory, const char *file, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		FAIL("%s: cannot write \"%s\": %s", path, text, strerror(errno));
	close(fd);
}
