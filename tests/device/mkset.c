/* mkset DIR ROWS,KD,ND,LAYOUT...: writes a kernel set for tests (LAYOUT 0 row-major, 1 blocked). */
#include "kernel_files.h"
#include <stdio.h>

int main(int argc, char **argv)
{
	static struct design designs[64];

	if (argc < 3 || argc - 2 > 64) {
		fprintf(stderr, "usage: %s DIR ROWS,KD,ND,LAYOUT...\n", argv[0]);
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		struct design *d = &designs[i - 2];
		if (sscanf(argv[i], "%u,%u,%u,%u", &d->rows, &d->kd, &d->nd, &d->layout) != 4) {
			fprintf(stderr, "%s: %s: not ROWS,KD,ND,LAYOUT\n", argv[0], argv[i]);
			return 2;
		}
	}
	if (!kernel_files_write(argv[1], designs, (unsigned)argc - 2)) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}
