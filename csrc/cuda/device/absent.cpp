// Replaces cuda_device.cu in builds without CUDA: the same symbols, each of which reports the reason.
#include <stdexcept>

#include "cuda/device/cuda_device.hpp"

namespace patrac::cuda {

DeviceStatus status() {
    DeviceStatus status;
    status.reason = "this build of patrac_native has no CUDA";
    return status;
}

std::shared_ptr<const DeviceInputs> take_inputs(InputSource, bool, std::uintptr_t) {
    throw std::runtime_error(status().reason);
}

template <class T>
std::unique_ptr<DeviceModel<T>> make_model(const DataSets<T>&) {
    throw std::runtime_error(status().reason);
}

template <class T>
void normals(std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t) {
    throw std::runtime_error(status().reason);
}

#define PATRAC_INSTANTIATE(T)                                                   \
    template std::unique_ptr<DeviceModel<T>> make_model<T>(const DataSets<T>&); \
    template void normals<T>(std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace patrac::cuda
