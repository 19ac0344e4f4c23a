/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Files of the kernel that take a word, in sysfs and in control groups.
 */
#ifndef FILES_H
#define FILES_H

/* Writes all of `text` at once; the case fails where it is not taken. */
void write_text(const char *directory, const char *file, const char *text);

#endif
