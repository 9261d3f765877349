#pragma once
#include "xrt_device.h"

namespace xrt
{
class elf;
class hw_context
{
      public:
	hw_context() = default;
	hw_context(const device &device, const uuid &id);
	hw_context(const device &device, const elf &image);
};
} // namespace xrt
