/* Jobs of every size on pools of every size, back to back and after sleep: each piece once, seen by the
 * caller. */
#include "pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 64 };

struct job {
	unsigned number;
	unsigned written[PIECES]; /* not atomic: the pool's hand-over must be enough */
};

static void write_piece(void *arg, uint32_t i, unsigned thread)
{
	struct job *j = arg;
	(void)thread;
	j->written[i] += j->number;
}

int main(void)
{
	for (unsigned threads = 1; threads <= 5; threads++) {
		struct pool *pool;
		if (!pool_new(&pool, threads))
			return 1;
		for (unsigned number = 1; number < 3000; number++) {
			struct job j = {.number = number};
			uint32_t pieces = number % PIECES;
			if (number % 500 == 0)
				usleep(3000);
			pool_run(pool, pieces, write_piece, &j);
			for (uint32_t i = 0; i < PIECES; i++)
				if (j.written[i] != (i < pieces ? number : 0)) {
					printf("job %u of %u threads: piece %u was written %u\n", number,
					       threads, i, j.written[i]);
					return 1;
				}
		}
		pool_free(pool);
	}
	return 0;
}
