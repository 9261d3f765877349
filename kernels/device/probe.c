#include "probe.h"
#include "kernelset.h"
#include "runner.h"
#include "xrt_module.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAP_BYTES (UINT64_C(64) << 20) /* what amdxdna maps and locks for every process that opens it */
#define PATIENCE_MS 20000u

struct probe {
	probe_report *report;
	void *arg;
};

__attribute__((format(printf, 5, 6))) static void say(const struct probe *p, enum probe_verdict verdict,
						      const char *what, const char *cure, const char *format,
						      ...)
{
	char found[512];
	va_list args;

	va_start(args, format);
	vsnprintf(found, sizeof found, format, args);
	va_end(args);
	p->report(p->arg, verdict, what, found, verdict == PROBE_GOOD ? "" : cure);
}

static void look_at_node(const struct probe *p, const char *node)
{
	struct stat st;

	if (stat(node, &st)) {
		say(p, PROBE_BAD, "node",
		    "load the driver (modprobe amdxdna: Linux 6.14 and newer have it, AMD's xdna-driver "
		    "package "
		    "for older ones), or name the node in [device] node",
		    "%s: %s", node, strerror(errno));
		return;
	}
	say(p, PROBE_GOOD, "node", "", "%s", node);
	int fd = open(node, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		say(p, PROBE_BAD, "permission",
		    "add npud's user to the group that owns the node (ls -l shows it), then start npud again",
		    "%s cannot be opened for reading and writing: %s", node, strerror(errno));
	else
		say(p, PROBE_GOOD, "permission", "", "it can be opened");
	if (fd >= 0)
		close(fd);
}

/* Every buffer is locked memory: the heap, and the tiles of all resident heads. */
static void look_at_memlock(const struct probe *p)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur < 4 * HEAP_BYTES)
		say(p, PROBE_BAD, "memlock",
		    "LimitMEMLOCK=infinity in the service, or ulimit -l unlimited in the shell",
		    "%" PRIu64 " KiB of memory may be locked; the driver alone locks %" PRIu64
		    " KiB, and every head adds to it",
		    (uint64_t)limit.rlim_cur >> 10, HEAP_BYTES >> 10);
	else
		say(p, PROBE_GOOD, "memlock", "", "enough memory may be locked");
}

static bool look_at_kernels(const struct probe *p, const char *directory, struct kernelset *set)
{
	struct device_why why = {""};

	*set = (struct kernelset){0};
	int code = kernelset_open(set, directory, &why);
	if (code) {
		say(p, PROBE_BAD, "kernel set",
		    code == DEVICE_E_ABSENT ? "build one as docs/kernels.md says, and npuctl kernels import "
					      "DIR; until then the host "
					      "does all work"
					    : "docs/kernels.md says what a set holds and how to build one",
		    "%s", why.text);
		return false;
	}
	say(p, PROBE_GOOD, "kernel set", "", "%s: %u designs, whole", directory, set->count);
	return true;
}

static const struct device_table *look_at_xrt(const struct probe *p, const char *module)
{
	const struct device_table *table;
	struct device_why why = {""};
	struct device_limits limits;
	struct device *d;

	if (xrt_module_load(&table, module, &why)) {
		say(p, PROBE_BAD, "XRT", "see the sentence above", "%s", why.text);
		return NULL;
	}
	int code = table->open(&d, "", &why);
	if (code) {
		say(p, PROBE_BAD, "XRT",
		    code == DEVICE_E_NO_MEMORY || code == DEVICE_E_DENIED ? "see memlock and permission"
		    : strstr(why.text, "XILINX_XRT")
			    ? "set XILINX_XRT to where XRT is, as its setup.sh does, for the service too: "
			      "XRT before "
			      "2.16 asks for it"
			    : "see node; xrt-smi examine should list the NPU, with the XRT that belongs to "
			      "its driver",
		    "the device cannot be opened: %s", why.text);
		return NULL;
	}
	table->limits(d, &limits);
	table->close(d);
	say(p, PROBE_GOOD, "XRT", "", "%s, the device opens", limits.version);
	if (limits.contexts_max)
		say(p, limits.contexts_used < limits.contexts_max ? PROBE_GOOD : PROBE_BAD, "contexts",
		    "end a program that holds one: fuser -v names those that have the node open",
		    "%u of %u are in use", limits.contexts_used, limits.contexts_max);
	else
		say(p, PROBE_SKIPPED, "contexts", "", "this driver does not tell how many are in use");
	return table;
}

/* A runner of its own proves the design: as the daemon would. */
static bool try_design(const struct probe *p, const struct device_table *table, const struct design *d)
{
	struct runner_options o = runner_defaults;
	struct runner_status s = {0};
	struct device_why why = {""};
	struct runner *r;

	o.table = table;
	o.designs = d;
	o.design_count = 1;
	if (runner_new(&r, &o, &why)) {
		say(p, PROBE_BAD, "canary", "", "%s", why.text);
		return false;
	}
	for (uint32_t ms = 0; ms < PATIENCE_MS; ms += 10) {
		runner_status(r, &s);
		if (s.health == HEALTH_OK || s.health == HEALTH_FAILED || s.contexts_refused > 1)
			break;
		usleep(10000);
	}
	runner_close(r);
	runner_free(r);
	say(p, s.health == HEALTH_OK ? PROBE_GOOD : PROBE_BAD, "canary",
	    "if the sentence names nothing to do: is the set for this NPU and driver? does it come after a "
	    "restart?",
	    "%u x %u x %u, %s: %s", d->rows, d->kd, d->nd, d->layout ? "blocked" : "row-major",
	    s.health == HEALTH_OK ? "right" : s.reason);
	return s.health == HEALTH_OK;
}

void probe_machine(const char *node, probe_report *report, void *arg)
{
	const struct probe p = {report, arg};

	look_at_node(&p, node);
	look_at_memlock(&p);
}

bool probe_device(const struct probe_options *o, probe_report *report, void *arg)
{
	struct probe p = {report, arg};
	struct kernelset set;
	bool usable = false;

	probe_machine(o->node, report, arg);
	bool kernels = look_at_kernels(&p, o->kernels, &set);
	const struct device_table *table = look_at_xrt(&p, o->module);
	if (!kernels || !table)
		say(&p, PROBE_SKIPPED, "canary", "", "needs XRT and a kernel set");
	for (uint32_t i = 0; kernels && table && i < set.count; i++)
		usable |= try_design(&p, table, &set.designs[i]);
	kernelset_close(&set);
	return usable;
}
