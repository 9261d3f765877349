#include "filesystem.h"
#include <stddef.h>

static const struct {
	unsigned long type;
	const char *name;
} remote[] = {
	{0x6969, "NFS"},      {0xff534d42, "CIFS"},   {0xfe534d42, "SMB"},  {0x517b, "SMB"},
	{0x65735546, "FUSE"}, {0x01021997, "9P"},     {0x00c36400, "Ceph"}, {0x5346414f, "AFS"},
	{0x47504653, "GPFS"}, {0x0bd00bd0, "Lustre"},
};

const char *filesystem_remote(unsigned long type)
{
	for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
		if (type == remote[i].type)
			return remote[i].name;
	return NULL;
}

bool filesystem_tells_writes(unsigned long type)
{
	const unsigned long ext = 0xef53, xfs = 0x58465342, btrfs = 0x9123683e, f2fs = 0xf2f52010;
	return type == ext || type == xfs || type == btrfs || type == f2fs;
}
