/* Property: any bytes are kernel files of each kind, or a refusal with a sentence. */
#include "kimage.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must_say(bool good, const struct device_why *why)
{
	if (!good && !why->text[0])
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct device_why why = {""};

	must_say(kimage_xclbin(bytes, size, "MLIR_AIE", &why), &why);
	why.text[0] = '\0';
	must_say(kimage_elf(bytes, size, &why), &why);
	why.text[0] = '\0';
	must_say(kimage_instructions(bytes, size, &why), &why);
	return 0;
}
