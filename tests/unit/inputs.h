/* Real model files and hostile ones, which are not part of the project: where they are. */
#ifndef INPUTS_H
#define INPUTS_H

#include <stdlib.h>

static inline const char *data_dir(void)
{
	const char *dir = getenv("NPUD_TEST_DATA");

	return dir ? dir : NPUD_SOURCE_DIR "/../shared/data";
}

#endif
