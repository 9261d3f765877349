#include "xrt_module.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int xrt_module_load(const struct device_table **out, const char *path, struct device_why *why)
{
	if (access(path, R_OK) != 0) {
		snprintf(why->text, sizeof why->text,
			 "no XRT module at %.200s: npud was built without XRT, or installed below another "
			 "prefix than it was built for; name the module in [device] module, or build it as "
			 "docs/kernels.md says",
			 path);
		return DEVICE_E_ABSENT;
	}
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		snprintf(why->text, sizeof why->text,
			 "%.250s; install XRT, or build the module for the XRT that is there "
			 "(docs/kernels.md)",
			 dlerror());
		return DEVICE_E_ABSENT;
	}
	const struct device_table *(*entry)(void);
	void *symbol = dlsym(module, XRT_MODULE_ENTRY);
	memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
	const struct device_table *table = symbol ? entry() : NULL;
	if (!table || table->abi != DEVICE_ABI) {
		snprintf(why->text, sizeof why->text,
			 "%.200s is not a module of this npud: build it again (docs/kernels.md)", path);
		dlclose(module);
		return DEVICE_E_ABSENT;
	}
	*out = table;
	return DEVICE_OK;
}
