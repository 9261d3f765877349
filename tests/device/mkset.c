/* mkset DIR ROWS,KD,ND,LAYOUT[,elf]...: writes a kernel set for tests (LAYOUT 0 row-major, 1 blocked). */
#include "kernel_files.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	static struct design designs[64];

	if (argc < 3 || argc - 2 > 64) {
		fprintf(stderr, "usage: %s DIR ROWS,KD,ND,LAYOUT[,elf]...\n", argv[0]);
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		struct design *d = &designs[i - 2];
		char kind[4] = "";
		int read = sscanf(argv[i], "%u,%u,%u,%u,%3s", &d->rows, &d->kd, &d->nd, &d->layout, kind);
		d->image = strcmp(kind, "elf") == 0 ? DEVICE_ELF : DEVICE_XCLBIN;
		if (read < 4 || (read == 5 && d->image != DEVICE_ELF)) {
			fprintf(stderr, "%s: %s: not ROWS,KD,ND,LAYOUT[,elf]\n", argv[0], argv[i]);
			return 2;
		}
	}
	if (!kernel_files_write(argv[1], designs, (unsigned)argc - 2)) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}
