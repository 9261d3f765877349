/*
 * The device behind XRT, in a module of its own: nothing else of npud needs XRT, and who has another version
 * than the package was built with compiles one file again (docs/kernels.md has the command). The module is
 * xrt.cc; it exports one function. (This header cannot be named xrt.h: XRT has one, and would find ours.)
 *
 * Settings of its `open`: "" or the index of the device, or its PCI address (0000:c5:00.1).
 */
#ifndef NPUD_XRT_MODULE_H
#define NPUD_XRT_MODULE_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XRT_MODULE_ENTRY "npud_device_xrt"

/* What the module exports under that name. */
const struct device_table *npud_device_xrt(void);

/*
 * Loads the module, for good: XRT's threads do not survive its going. ABSENT with a sentence that says
 * whether the module or XRT is missing, or is of another version.
 */
int xrt_module_load(const struct device_table **out, const char *path, struct device_why *why);

#ifdef __cplusplus
}
#endif

#endif
