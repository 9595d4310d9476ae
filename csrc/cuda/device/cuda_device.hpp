// The CUDA device, behind csrc/device.hpp; absent.cpp replaces it in builds without CUDA.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device_model.hpp"
#include "shared/purpose.hpp"

namespace patrac::cuda {

DeviceStatus status();
std::shared_ptr<const DeviceInputs> take_inputs(InputSource source, bool copy, std::uintptr_t stream);
template <class T>
std::unique_ptr<DeviceModel<T>> make_model(const DataSets<T>& data_sets);
template <class T>
void normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out, std::int64_t count);

}  // namespace patrac::cuda
