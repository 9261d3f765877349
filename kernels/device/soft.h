/*
 * The software device: a device of which everything can be set, faults included, for tests and
 * demonstrations. Its settings are those of simulation.h. It keeps a copy of every buffer that only
 * buffer_sync reaches, so that a missing sync is a wrong number. One thread a device computes.
 */
#ifndef NPUD_SOFT_H
#define NPUD_SOFT_H

#include "device.h"

extern const struct device_table device_soft;

#endif
