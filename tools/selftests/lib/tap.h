/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Named test cases that print TAP.
 *
 *	CASE(refuses_zero, "size 0 is EINVAL")
 *	{
 *		CHECK_EQ(call(...), EINVAL);
 *	}
 *
 * Each case runs in a process of its own, so that it starts without any state in the kernel, may leave
 * behind whatever the end of a process has to clean up, and cannot take the others down. It passes by
 * returning. A case that does not end in time is killed and fails.
 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a process of a case says that the case is skipped. */
#define TAP_STATUS_SKIP 77

struct tap_case {
	const char *name;
	void (*run)(void);
	/* Seconds it may take; 0 means the default. */
	unsigned int limit;
	struct tap_case *next;
};

void tap_register(struct tap_case *c);

#define CASE_LIMIT(id, text, seconds)                                              \
	static void id(void);                                                      \
	static struct tap_case id##_case = { text, id, seconds, NULL };            \
	__attribute__((constructor)) static void id##_register(void)               \
	{                                                                          \
		tap_register(&id##_case);                                          \
	}                                                                          \
	static void id(void)

#define CASE(id, text) CASE_LIMIT(id, text, 0)

/*
 * A time limit that only matters when something is broken, made longer for slow machines: `ms` times
 * TAP_PATIENCE.
 */
unsigned int tap_ms(unsigned int ms);

/* Prints a diagnostic line. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the case as failed or skipped, with a reason. */
void tap_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));
void tap_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * Ends the case because the machine lacks something: skipped, or failed where the environment variable
 * KFD_REQUIRE_GPU says that it must be there.
 */
void tap_lacking(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define FAIL(...) tap_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) tap_skip(__VA_ARGS__)
#define LACKING(...) tap_lacking(__VA_ARGS__)

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition))                                                  \
			FAIL("not true: %s", #condition);                          \
	} while (0)

#define CHECK_OP(a, op, b)                                                         \
	do {                                                                       \
		unsigned long long a_ = (unsigned long long)(a);                   \
		unsigned long long b_ = (unsigned long long)(b);                   \
		if (!(a_ op b_))                                                   \
			FAIL("%s %s %s: %llu (%#llx) against %llu (%#llx)", #a,    \
			     #op, #b, a_, a_, b_, b_);                             \
	} while (0)

#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)

const char *tap_errno(int err);

/* The call returns 0 or an errno; it must be this one. */
#define CHECK_ERR(call, expected)                                                  \
	do {                                                                       \
		int got_ = (call), want_ = (expected);                             \
		if (got_ != want_)                                                 \
			FAIL("%s: %s, expected %s", #call, tap_errno(got_),        \
			     tap_errno(want_));                                    \
	} while (0)

#define CHECK_OK(call) CHECK_ERR(call, 0)

/* Runs the registered cases whose names contain an argument (all without one). */
int tap_main(int argc, char **argv);

#endif
