#pragma once
#include "../xrt_kernel.h"

namespace xrt
{
namespace ext
{
class bo : public xrt::bo
{
      public:
	bo(const device &device, size_t size);
};
class kernel : public xrt::kernel
{
      public:
	kernel(const hw_context &context, const std::string &name);
};
} // namespace ext
} // namespace xrt
