// The kernels' names.
#pragma once

#include <cstdint>
#include <iterator>

#include "shared/host_device.hpp"
#include "shared/names.hpp"

namespace patrac {

enum class KernelKind : std::uint8_t { pcn, pcnl, mgrad, elliptical_slice, exact };

inline constexpr Named<KernelKind> kernels[] = {
    {KernelKind::pcn, "pcn"},     {KernelKind::pcnl, "pcnl"},
    {KernelKind::mgrad, "mgrad"}, {KernelKind::elliptical_slice, "elliptical_slice"},
    {KernelKind::exact, "exact"},
};
static_assert(in_order(kernels) && is_whole<KernelKind, std::size(kernels)>);

// Whether a step reads the gradient of the log-likelihood.
PATRAC_HOST_DEVICE constexpr bool uses_gradient(KernelKind kernel) {
    switch (kernel) {
        case KernelKind::pcnl:
        case KernelKind::mgrad: return true;
        case KernelKind::pcn:
        case KernelKind::elliptical_slice:
        case KernelKind::exact: return false;
    }
    __builtin_unreachable();
}

}  // namespace patrac
