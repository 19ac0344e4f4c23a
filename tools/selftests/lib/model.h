/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The control port of the device model: faults, and what the model knows of its queues. */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>

/* Opens the control port of the first model, or ends the case as lacking. */
void need_model(void);

/* A child has no use for it. */
void close_model(void);

/* Sends a request and returns the reply, which stays until the next one. Ends the case if it is refused. */
const char *ask_model(const char *request);

/* Whether the model's table of queues has this doorbell. */
bool has_doorbell(const char *table, unsigned long doorbell);

/* The doorbell that the model's table of queues has `now` and had not `before`, or ends the case. */
unsigned long new_doorbell(const char *before, const char *now);

/* Whether the only GPU of the driver may master the bus, by its configuration space. */
bool masters_the_bus(void);

#endif
