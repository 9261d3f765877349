#include "path.h"
#include <string.h>

static const char *const names[PATH_COUNT] = {"auto", "host", "device", "alternate"};

const char *path_name(enum path path)
{
	return names[path];
}

enum path path_of(const char *name, size_t size)
{
	enum path p = PATH_AUTO;
	while (p < PATH_COUNT && (strlen(names[p]) != size || memcmp(names[p], name, size) != 0))
		p++;
	return p;
}

unsigned path_size(uint32_t rows)
{
	return rows <= 1 ? 0 : rows <= 4 ? 1 : rows <= 8 ? 2 : rows <= 16 ? 3 : 4;
}

void path_measured(double *cost, double seconds)
{
	*cost = *cost > 0 ? *cost + (seconds - *cost) / 4 : seconds;
}

static struct path_choice auto_choose(const struct path_facts *f)
{
	if (f->host > 0 && f->device_cost > 0)
		return f->host <= f->device_cost
			       ? (struct path_choice){PATH_HOST, "the host was quicker for so many rows"}
			       : (struct path_choice){PATH_DEVICE, "the device was quicker for so many rows"};
	return f->rows <= 1
		       ? (struct path_choice){PATH_HOST, "a single row, and not both paths are measured"}
		       : (struct path_choice){PATH_DEVICE, "several rows, and not both paths are measured"};
}

struct path_choice path_choose(const struct path_facts *f)
{
	const char *no_device = !f->device    ? "there is no device with kernels for these weights"
				: f->reserved ? "the device is reserved by an exclusive ticket"
				: !f->well    ? "the device is not well"
					      : NULL;

	if (no_device) {
		if (f->asked == PATH_DEVICE || !f->mapped)
			return (struct path_choice){PATH_AUTO, no_device};
		return (struct path_choice){PATH_HOST, f->asked == PATH_HOST ? "asked for" : no_device};
	}
	if (!f->mapped)
		return f->asked == PATH_HOST
			       ? (struct path_choice){PATH_AUTO, "the host cannot read these weights"}
			       : (struct path_choice){PATH_DEVICE, "the host cannot read these weights"};
	switch (f->asked) {
	case PATH_HOST:
	case PATH_DEVICE:
		return (struct path_choice){f->asked, "asked for"};
	case PATH_ALTERNATE:
		return (struct path_choice){f->turn ? PATH_DEVICE : PATH_HOST, "by turns"};
	case PATH_AUTO:
	case PATH_COUNT:
		break;
	}
	return auto_choose(f);
}
