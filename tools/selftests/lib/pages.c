// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "pages.h"
#include "tap.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#define PAGE 4096ul
#define WORDS (PAGE / 8)

/* Entries of pages that have some of these bits. */
static unsigned int count_entries(const void *p, unsigned int pages, uint64_t bits)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	unsigned int found = 0;

	CHECK_OP(fd, >=, 0);
	for (unsigned int first = 0; first < pages; first += 512) {
		unsigned int count = pages - first < 512 ? pages - first : 512;
		off_t at = ((uintptr_t)p / PAGE + first) * sizeof(uint64_t);
		uint64_t entries[512];

		CHECK_EQ(pread(fd, entries, count * sizeof(uint64_t), at), count * sizeof(uint64_t));
		for (unsigned int i = 0; i < count; i++)
			found += (entries[i] & bits) != 0;
	}
	close(fd);
	return found;
}

unsigned int device_pages(const void *p, unsigned int pages)
{
	/* Entries of other kinds than present ones; the machine has no swap. */
	return count_entries(p, pages, 1ull << 62);
}

unsigned int present_pages(const void *p, unsigned int pages)
{
	return count_entries(p, pages, 1ull << 62 | 1ull << 63);
}

static uint64_t word_of(uint32_t seed, unsigned int page, unsigned int word)
{
	return ((uint64_t)seed << 32 | page << 9 | word) * 0x9e3779b97f4a7c15ul | 1;
}

void pattern(uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed)
{
	for (unsigned int page = 0; page < pages; page++)
		for (unsigned int i = 0; i < WORDS; i++)
			((volatile uint64_t *)(p + page * PAGE))[i] = word_of(seed, first + page, i);
}

void page_has(const uint8_t *page, const char *who, unsigned int number, uint32_t seed, unsigned int word, uint64_t value)
{
	for (unsigned int i = 0; i < WORDS; i++) {
		uint64_t seen = ((const volatile uint64_t *)page)[i];
		uint64_t want = word_of(seed, number, i) + (i == word ? value : 0);

		if (seen != want)
			FAIL("word %u of page %u: the %s sees %#llx, not %#llx", i, number, who, (unsigned long long)seen,
			     (unsigned long long)want);
	}
}

void has_added(const uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed, unsigned int word, uint64_t value)
{
	for (unsigned int page = 0; page < pages; page++)
		page_has(p + page * PAGE, "CPU", first + page, seed, word, value);
}

void has_pattern(const uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed)
{
	has_added(p, first, pages, seed, 0, 0);
}

void page_is_zero(const uint8_t *page, const char *who, unsigned int number)
{
	for (unsigned int i = 0; i < WORDS; i++)
		if (((const volatile uint64_t *)page)[i])
			FAIL("word %u of page %u: the %s sees %#llx, not 0", i, number, who,
			     (unsigned long long)((const volatile uint64_t *)page)[i]);
}

void has_zeroes(const uint8_t *p, unsigned int pages)
{
	for (unsigned int page = 0; page < pages; page++)
		page_is_zero(p + page * PAGE, "CPU", page);
}
