// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Where mirrors end: at other opens, at holes, and with the mirror or the program itself.
 */
#include "mirror.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(guests, "two opens by one program: each has memory of its own at the same GPU addresses, and the same at others")
{
	struct engine a, b;
	uint8_t *p = need_memory(4 * PAGE), *q = need_memory(4 * PAGE), *both = need_memory(4 * PAGE);

	engine_begin(&a);
	engine_begin(&b);
	fill(p, 4, 0xa0);
	fill(q, 4, 0xb0);
	need_mirror(&a.file, p, AT, 4 * PAGE, 0);
	need_mirror(&b.file, q, AT, 4 * PAGE, 0);
	need_mirror(&a.file, both, AT + HUGE, 4 * PAGE, 0);
	need_mirror(&b.file, both, AT + 7 * HUGE, 4 * PAGE, 0);
	gpu_sees(&a, AT, 4, 0xa0);
	gpu_sees(&b, AT, 4, 0xb0);
	gpu_write(&a, AT + HUGE + 8, 0x5a);
	CHECK_EQ(gpu_read(&b, AT + 7 * HUGE + 8), 0x5a);
	CHECK_EQ(madvise(both, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_read(&a, AT + HUGE + 8), 0);
	CHECK_EQ(gpu_read(&b, AT + 7 * HUGE + 8), 0);
	engine_end(&a);
	gpu_sees(&b, AT, 4, 0xb0);
	engine_end(&b);
}

CASE(holes, "a range with holes shows what there is, and an access to a hole is told")
{
	struct engine e;
	uint8_t *p = mmap(NULL, 1ul << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint32_t id;

	CHECK(p != MAP_FAILED);
	CHECK_EQ(mprotect(p + (1ul << 35), 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(mprotect(p + (1ul << 30), PAGE, PROT_READ | PROT_WRITE), 0);
	fill(p + (1ul << 35), 2, 0x60);
	fill(p + (1ul << 30), 1, 0x70);
	engine_begin(&e);
	id = need_mirror(&e.file, p, 1ul << 40, 1ul << 36, 0);
	CHECK_EQ(mirror_query(&e.file, id).bytes, 3 * PAGE);
	gpu_sees(&e, (1ul << 40) + (1ul << 35), 2, 0x60);
	gpu_sees(&e, (1ul << 40) + (1ul << 30), 1, 0x70);
	must_fault(&e, (1ul << 40) + (1ul << 35) + 2 * PAGE, false, 0);
}

CASE(ended, "when a mirror ends, the GPU does not reach its memory any more")
{
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);
	uint32_t id;

	engine_begin(&e);
	fill(p, 4, 0x50);
	id = need_mirror(&e.file, p, AT, 4 * PAGE, 0);
	gpu_sees(&e, AT, 4, 0x50);
	CHECK_OK(mirror_destroy(&e.file, id));
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE);
	CHECK_EQ(*word(p, PAGE), 0x51);
}

CASE(foreign, "a file shows memory of its opener: who got the descriptor sees it, adds nothing, and sees it end with its program")
{
	struct drm_rkfd_mirror_create args;
	struct nfile file = { 0 };
	uint8_t *p = need_memory(4 * PAGE);
	uint32_t id = 1;
	int pair[2], status;
	pid_t child;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;

		need_file(&file);
		CHECK_EQ(need_mirror(&file, p, AT, 4 * PAGE, 0), 1);
		send_fd(pair[1], file.fd);
		close(pair[0]);
		if (read(pair[1], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	close(pair[1]);
	file.fd = receive_fd(pair[0]);
	CHECK_EQ(mirror_query(&file, id).bytes, 4 * PAGE);
	CHECK_ERR(mirror_create(&file, p, AT + HUGE, 4 * PAGE, 0, &args), EXDEV);
	CHECK_EQ(write(pair[0], "", 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	CHECK_EQ(mirror_query(&file, id).bytes, 0);
	CHECK_ERR(mirror_populate(&file, id, AT, PAGE), ESRCH);
	CHECK_OK(mirror_destroy(&file, id));
	close(file.fd);
}
