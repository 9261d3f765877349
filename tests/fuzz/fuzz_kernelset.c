/*
 * Property: any bytes are a manifest or a refusal with a sentence; designs that are accepted cut any head
 * into tiles that hold it.
 */
#include "kernelset.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static const uint32_t heads[][2] = {{1, 1}, {512, 64}, {32000, 4096}, {UINT32_MAX, UINT32_MAX}};
	struct device_why why = {""};
	struct kernelset s;
	int r = kernelset_parse(&s, (const char *)bytes, size, "/somewhere", &why);

	if (r ? !why.text[0] || s.count : !s.count)
		abort();
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		const struct design *d = kernelset_choose(&s, heads[i][0], heads[i][1], 3, 16);
		if (!d)
			continue;
		struct geometry g = design_geometry(d, heads[i][0], heads[i][1]);
		if (g.kd < g.h || (uint64_t)g.tiles * g.nd < g.nv || (uint64_t)(g.tiles - 1) * g.nd >= g.nv)
			abort();
	}
	kernelset_close(&s);
	return 0;
}
