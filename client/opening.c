#include "opening.h"
#include "exit.h"
#include "output.h"

static int on_progress(void *arg, uint64_t done, uint64_t tiles)
{
	if (output_held())
		return 1;
	progress_show(arg, done, tiles);
	return 0;
}

int opening_head(npu_client *c, const char *model, struct npu_head_options options, npu_head **head,
		 struct npu_head_info *info)
{
	struct progress progress;

	*head = NULL;
	options.progress = on_progress;
	options.progress_arg = &progress;
	progress_begin(&progress);
	output_hold();
	int error = npu_head_open(c, model, &options, head, info);
	int number = output_resume();
	progress_end(&progress);
	if (number)
		return exit_complain(128 + number, "interrupted");
	return error ? exit_model(c, error, model) : 0;
}
