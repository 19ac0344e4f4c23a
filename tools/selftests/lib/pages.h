/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where each page of the program is, and patterns by which is told what it has. Needs nothing of a GPU.
 *
 * What compares ends the case when it finds another value.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stdint.h>

/* How many pages of this process are in VRAM, by /proc/self/pagemap. Touches none. */
unsigned int device_pages(const void *p, unsigned int pages);
/* How many have memory, wherever. */
unsigned int present_pages(const void *p, unsigned int pages);

/* Every word of 64 bits of `pages` pages, of which the first has number `first`, follows from `seed`, page and place. */
void pattern(uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed);
void has_pattern(const uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed);
/* … and `value` was added to one word of each page. */
void has_added(const uint8_t *p, unsigned int first, unsigned int pages, uint32_t seed, unsigned int word, uint64_t value);
/* All bytes are zero. */
void has_zeroes(const uint8_t *p, unsigned int pages);

/* One page, or a copy of it that `who` has made. */
void page_has(const uint8_t *page, const char *who, unsigned int number, uint32_t seed, unsigned int word, uint64_t value);
void page_is_zero(const uint8_t *page, const char *who, unsigned int number);

#endif
