/*
 * The five best words of a head for one row of ones:
 *     cc example.c $(pkg-config --cflags --libs npu) && ./a.out model.gguf
 */
#include <npu.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	npu_client *client = NULL;
	npu_head *head = NULL;
	struct npu_head_info info;
	uint32_t ids[5];
	float values[5];
	float *x = NULL;

	if (argc != 2) {
		fprintf(stderr, "usage: example MODEL\n");
		return 2;
	}
	int r = npu_connect(&client, NULL, "example");
	if (r == 0)
		r = npu_head_open(client, argv[1], NULL, &head, &info);
	if (r == 0) {
		x = malloc(info.h * sizeof *x);
		for (uint32_t i = 0; x && i < info.h; i++)
			x[i] = 1.0f;
		/* An unsuccessful malloc is refused as BAD_VALUE. */
		uint32_t k = info.nv < 5 ? info.nv : 5;
		r = npu_head_top(head, x, 1, k, ids, values, NULL);
		for (uint32_t i = 0; r == 0 && i < k; i++)
			printf("%8u  %g\n", ids[i], values[i]);
	}
	if (r != 0)
		fprintf(stderr, "example: %s (%s)\n", npu_error_text(client), npu_error_name(r));
	free(x);
	npu_close(client); /* gives the head back, too */
	return r != 0;
}
