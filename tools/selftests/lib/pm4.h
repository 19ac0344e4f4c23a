/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* PM4 and SDMA packets, written into a growing array of dwords. */
#ifndef PM4_H
#define PM4_H

#include <stdint.h>

struct packets {
	uint32_t dw[4096];
	unsigned int n;
};

static inline void put(struct packets *p, uint32_t dw)
{
	if (p->n < sizeof(p->dw) / sizeof(p->dw[0]))
		p->dw[p->n++] = dw;
}

static inline void put64(struct packets *p, uint64_t v)
{
	put(p, (uint32_t)v);
	put(p, (uint32_t)(v >> 32));
}

/* What WAIT_REG_MEM and POLL_REGMEM compare memory by. */
enum { EQUAL = 3, NOT_EQUAL = 4, GREATER_EQUAL = 5 };

/* Type 3, compute; `payload` dwords follow. */
static inline void pm4_header(struct packets *p, unsigned int opcode, unsigned int payload)
{
	put(p, 3u << 30 | (payload - 1) << 16 | opcode << 8 | 1 << 1);
}

/* NOP with `skipped` dwords (at least 1) that must have no effect. */
static inline void pm4_nop(struct packets *p, unsigned int skipped)
{
	pm4_header(p, 0x10, skipped);
	for (unsigned int i = 0; i < skipped; i++)
		put(p, 0xdeadbeef);
}

/* Stores one dword in memory, with write confirmation. */
static inline void pm4_write(struct packets *p, uint64_t address, uint32_t value)
{
	pm4_header(p, 0x37, 4);
	put(p, 5 << 8 | 1 << 20);
	put64(p, address);
	put(p, value);
}

/* data_sel: 0 none, 1 32 bits, 2 64 bits, 3 clock; int_sel: 0 none, 2 interrupt after the write. */
static inline void pm4_release(struct packets *p, uint64_t address, unsigned int data_sel, uint64_t data,
			       unsigned int int_sel, uint32_t context)
{
	pm4_header(p, 0x49, 7);
	put(p, 0x14 | 5 << 8 | 1 << 15 | 1 << 17);
	put(p, int_sel << 24 | data_sel << 29);
	put64(p, address);
	put64(p, data);
	put(p, context);
}

static inline void pm4_acquire(struct packets *p)
{
	pm4_header(p, 0x58, 6);
	put(p, 1u << 18 | 1 << 22 | 1 << 23 | 1 << 27 | 1 << 29);
	put(p, 0xffffffff);
	put(p, 0xff);
	put64(p, 0);
	put(p, 10);
}

static inline void pm4_ib(struct packets *p, uint64_t address, uint32_t dwords)
{
	pm4_header(p, 0x3f, 3);
	put64(p, address);
	put(p, dwords | 1u << 23);
}

static inline void pm4_wait(struct packets *p, unsigned int function, uint64_t address, uint32_t reference,
			    uint32_t mask)
{
	pm4_header(p, 0x3c, 6);
	put(p, function | 1 << 4);
	put64(p, address);
	put(p, reference);
	put(p, mask);
	put(p, 4);
}

/* source: 1 memory, 5 immediate, 9 clock. */
static inline void pm4_copy(struct packets *p, unsigned int source, uint64_t from, uint64_t to, bool wide)
{
	pm4_header(p, 0x40, 5);
	put(p, source | 5 << 8 | (wide ? 1u << 16 : 0) | 1 << 20);
	put64(p, from);
	put64(p, to);
}

/* operation: 47 add of 64 bits, 15 add of 32. */
static inline void pm4_atomic(struct packets *p, unsigned int operation, uint64_t address, uint64_t source)
{
	pm4_header(p, 0x1e, 8);
	put(p, operation);
	put64(p, address);
	put64(p, source);
	put64(p, 0);
	put(p, 0);
}

static inline void pm4_dma(struct packets *p, uint64_t from, uint64_t to, uint32_t bytes)
{
	pm4_header(p, 0x50, 6);
	put(p, 1u << 31);
	put64(p, from);
	put64(p, to);
	put(p, bytes);
}

/* Waits for earlier waves of the queue. */
static inline void pm4_partial_flush(struct packets *p)
{
	pm4_header(p, 0x46, 1);
	put(p, 7 | 4 << 8);
}

static inline void sdma_nop(struct packets *p, unsigned int skipped)
{
	put(p, skipped << 16);
	for (unsigned int i = 0; i < skipped; i++)
		put(p, 0xdeadbeef);
}

static inline void sdma_copy(struct packets *p, uint64_t from, uint64_t to, uint32_t bytes)
{
	put(p, 1);
	put(p, bytes - 1);
	put(p, 0);
	put64(p, from);
	put64(p, to);
}

static inline void sdma_write(struct packets *p, uint64_t to, const uint32_t *data, unsigned int n)
{
	put(p, 2);
	put64(p, to);
	put(p, n - 1);
	for (unsigned int i = 0; i < n; i++)
		put(p, data[i]);
}

static inline void sdma_fill(struct packets *p, uint64_t to, uint32_t value, uint32_t bytes)
{
	put(p, 11 | 2u << 30);
	put64(p, to);
	put(p, value);
	put(p, bytes - 4);
}

static inline void sdma_fence(struct packets *p, uint64_t to, uint32_t value)
{
	put(p, 5);
	put64(p, to);
	put(p, value);
}

static inline void sdma_trap(struct packets *p, uint32_t context)
{
	put(p, 6);
	put(p, context);
}

/* function as in pm4_wait; polls memory for ever. */
static inline void sdma_poll(struct packets *p, unsigned int function, uint64_t address, uint32_t value,
			     uint32_t mask)
{
	put(p, 8 | function << 28 | 1u << 31);
	put64(p, address);
	put(p, value);
	put(p, mask);
	put(p, 10 | 0xfffu << 16);
}

/* operation: 47 add of 64 bits. */
static inline void sdma_atomic(struct packets *p, unsigned int operation, uint64_t address, uint64_t source)
{
	put(p, 10 | operation << 25);
	put64(p, address);
	put64(p, source);
	put64(p, 0);
	put(p, 0);
}

static inline void sdma_timestamp(struct packets *p, uint64_t to)
{
	put(p, 13 | 2 << 8);
	put64(p, to);
}

#endif
