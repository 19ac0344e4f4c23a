// SPDX-License-Identifier: GPL-2.0
/*
 * Bodies of the tracepoints, and their entries for Rust.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "rkfd_trace.h"
