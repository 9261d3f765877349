/* npuctl kernels: the kernel set that npud takes at its next start. The daemon says where that is; who may
 * write there may change it. */
#include "npuctl.h"
#include "kernelplace.h"
#include "plain.h"
#include "own.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int complain(int code, const char *command, const struct device_why *why)
{
	int status = code == DEVICE_E_DENIED	      ? EX_NOPERM
		     : code == DEVICE_E_NO_MEMORY     ? EX_TEMPFAIL
		     : code == DEVICE_E_BAD_CALL      ? EX_CANTCREAT
		     : code == DEVICE_E_FAULT	      ? EX_IOERR
		     : strcmp(command, "import") == 0 ? code == DEVICE_E_ABSENT ? EX_NOINPUT : EX_DATAERR
						      : EX_DATAERR;

	return exit_complain(status, "kernels %s: %s", command, why->text);
}

static int add_designs(struct listing *l, const struct kernelset *set)
{
	int r = 0;

	for (uint32_t i = 0; i < set->count && r == 0; i++) {
		const struct design *d = &set->designs[i];
		struct npu_design_row row = {d->rows, d->kd,	d->nd, d->layout ? "blocked" : "row-major",
					     d->file, d->kernel};
		r = add_design(l, &row);
	}
	return r;
}

/* What is at the place now. */
static int show(const char *place, const struct options *o)
{
	cleanup(listing_fini) struct listing l = listing_of(o, design_columns, DESIGN_COLUMNS);
	struct device_why why = {""};
	struct kernelset set;
	int code = kernelset_open(&set, place, &why), status = 0;

	if (code && code != DEVICE_E_ABSENT)
		status = complain(code, "ls", &why);
	else if (add_designs(&l, &set))
		status = no_memory();
	else if (o->json)
		status = print_json(
			json_pack("{so sO}", "kernels", table_json_string(place), "designs", l.array));
	else if (code)
		plain_line(stdout, "no kernel set at %s: npuctl kernels import DIR takes one in", place);
	else if (table_print(&l.table, stdout, o->headers))
		status = no_memory();
	kernelset_close(&set);
	return status;
}

static int change(const char *place, const char *command, const char *from, const struct options *o)
{
	struct device_why why = {""};
	int code = strcmp(command, "import") == 0   ? kernelplace_import(place, from, &why)
		   : strcmp(command, "remove") == 0 ? kernelplace_remove(place, &why)
						    : kernelplace_undo(place, &why);

	if (code)
		return complain(code, command, &why);
	int status = show(place, o);
	if (status || o->json)
		return status;
	bool there = access(place, F_OK) == 0;
	printf("npud %s when it is started next (systemctl restart npud); npuctl kernels undo takes it "
	       "back.\n",
	       there ? "uses it" : "does without");
	if (there)
		puts("It tries a kernel before it has it work; npud --check-device tries all of them "
		     "(npud(8)).");
	return 0;
}

int do_kernels(npu_client *c, const struct options *o)
{
	const char *command = o->operands[0] ? o->operands[0] : "ls",
		   *from = o->operands[0] ? o->operands[1] : NULL;
	struct npu_device device;
	bool import = strcmp(command, "import") == 0, list = strcmp(command, "ls") == 0;

	if (!import && !list && strcmp(command, "remove") != 0 && strcmp(command, "undo") != 0)
		return exit_usage("kernels: there is no %s; it is ls, import DIR, remove or undo", command);
	if (import != (from != NULL))
		return import ? exit_usage("kernels import: which directory?")
			      : exit_usage("kernels %s: %s: unexpected", command, from);
	int error = npu_device_status(c, &device, NULL, NULL);
	if (error)
		return exit_npu(c, error, NULL);
	if (!device.kernels[0])
		return exit_complain(EX_UNAVAILABLE,
				     "kernels: this npud does not say where it looks for them; is it older "
				     "than npuctl?");
	return list ? show(device.kernels, o) : change(device.kernels, command, from, o);
}
