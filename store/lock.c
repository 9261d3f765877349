#include "lock.h"
#include <sys/file.h>
#include <unistd.h>

#define TRIES 200
#define PAUSE_US 10000

bool lock_take(int fd)
{
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (tries == TRIES)
			return false;
		usleep(PAUSE_US);
	}
	return true;
}
