/*
 * Without libFuzzer: runs the target over every file named, and every file below a directory named.
 * What is not there is left out; nothing at all is a skip (77).
 */
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static unsigned replayed;

static int replay(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)where;
	if (kind != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	FILE *f = fopen(path, "rb");
	size_t size = (size_t)st->st_size;
	/* Exactly as large as the input, so that a sanitizer sees one byte too far. */
	uint8_t *bytes = malloc(size ? size : 1);
	if (!f || !bytes || fread(bytes, 1, size, f) != size) {
		perror(path);
		exit(1);
	}
	fclose(f);
	printf("%s\n", path);
	fflush(stdout); /* the last line names the input that crashed */
	LLVMFuzzerTestOneInput(bytes, size);
	free(bytes);
	replayed++;
	return 0;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct stat st;
		if (stat(argv[i], &st)) {
			printf("left out, not there: %s\n", argv[i]);
			continue;
		}
		if (nftw(argv[i], replay, 16, FTW_PHYS)) {
			perror(argv[i]);
			return 1;
		}
	}
	if (!replayed) {
		printf("skipped: no inputs\n");
		return 77;
	}
	printf("%u inputs\n", replayed);
	return 0;
}
