// The kernels' names.
#pragma once

#include <cstdint>

namespace patrac {

enum class KernelKind : std::uint8_t { pcn, pcnl, mgrad, elliptical_slice, exact };

}  // namespace patrac
