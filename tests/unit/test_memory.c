/* The least of what the machine and the control groups have left. */
#include "memory.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/npud-memory-XXXXXX";

static void put(const char *path, const char *text)
{
	char command[512], full[256];
	snprintf(full, sizeof full, "%s%s", root, path);
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
	cr_assert_eq(system(command), 0);
	FILE *f = fopen(full, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	fclose(f);
}

static void up(void)
{
	strcpy(root + strlen(root) - 6, "XXXXXX");
	cr_assert_not_null(mkdtemp(root));
	put("/proc/meminfo", "MemTotal:       8000 kB\nMemFree:  1 kB\nMemAvailable:   4000 kB\n");
}

static void down(void)
{
	char command[64];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(memory, .init = up, .fini = down);

Test(memory, without_groups_the_kernel_says)
{
	cr_assert_eq(memory_room(root), 4000u * 1024);
}

Test(memory, a_limit_above_the_own_group_bounds_and_file_pages_that_can_go_do_not_count)
{
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "5\n");
	put("/sys/fs/cgroup/a/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a/memory.current", "900000\n");
	put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 400000\n");
	cr_assert_eq(memory_room(root), 500000u);
}

Test(memory, the_older_hierarchy_and_the_other_mount_point_are_looked_at)
{
	put("/proc/self/cgroup", "12:cpu:/x\n5:memory:/m\n0::/u\n");
	put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "3000\n");
	put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "1000\n");
	cr_assert_eq(memory_room(root), 2000u);
	put("/sys/fs/cgroup/unified/u/memory.max", "700\n");
	put("/sys/fs/cgroup/unified/u/memory.current", "600\n");
	cr_assert_eq(memory_room(root), 100u);
}

Test(memory, a_group_over_its_limit_has_nothing_left)
{
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/memory.max", "10\n");
	put("/sys/fs/cgroup/a/memory.current", "20\n");
	cr_assert_eq(memory_room(root), 0u);
}

Test(memory, this_machine_has_some)
{
	cr_assert_gt(memory_room(""), 1u << 20);
	cr_assert_lt(memory_room(""), UINT64_MAX);
}
