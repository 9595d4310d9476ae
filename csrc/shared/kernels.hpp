// The kernels' names.
#pragma once

#include <cstdint>
#include <iterator>

#include "shared/names.hpp"

namespace patrac {

enum class KernelKind : std::uint8_t { pcn, pcnl, mgrad, elliptical_slice, exact };

inline constexpr Named<KernelKind> kernels[] = {
    {KernelKind::pcn, "pcn"},     {KernelKind::pcnl, "pcnl"},
    {KernelKind::mgrad, "mgrad"}, {KernelKind::elliptical_slice, "elliptical_slice"},
    {KernelKind::exact, "exact"},
};
static_assert(in_order(kernels) && is_whole<KernelKind, std::size(kernels)>);

}  // namespace patrac
