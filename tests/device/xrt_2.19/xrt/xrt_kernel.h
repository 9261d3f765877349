#pragma once
#include "xrt_bo.h"
#include "xrt_hw_context.h"
#include <chrono>

enum ert_cmd_state {
	ERT_CMD_STATE_NEW = 1,
	ERT_CMD_STATE_QUEUED = 2,
	ERT_CMD_STATE_RUNNING = 3,
	ERT_CMD_STATE_COMPLETED = 4,
	ERT_CMD_STATE_ERROR = 5,
	ERT_CMD_STATE_ABORT = 6,
	ERT_CMD_STATE_SUBMITTED = 7,
	ERT_CMD_STATE_TIMEOUT = 8,
	ERT_CMD_STATE_NORESPONSE = 9,
};

namespace xrt
{
class kernel
{
      public:
	kernel() = default;
	kernel(const hw_context &context, const std::string &name);
	int group_id(int argument) const;
};
class run
{
      public:
	run() = default;
	explicit run(const kernel &kernel);
	template <class T> void set_arg(int index, T &&value);
	void start();
	ert_cmd_state wait(const std::chrono::milliseconds &timeout) const;
	ert_cmd_state state() const;
};
} // namespace xrt
