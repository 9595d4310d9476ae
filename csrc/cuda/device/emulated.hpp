// The emulated device, behind csrc/device.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device_model.hpp"
#include "shared/purpose.hpp"

namespace patrac::emulated {

DeviceStatus status(int threads);
// Barriers that the blocks of emulated devices have passed in this process, for tests.
std::int64_t barriers();
std::shared_ptr<const DeviceInputs> take_inputs(InputSource source, bool copy);
template <class T>
std::unique_ptr<DeviceModel<T>> make_model(const DataSets<T>& data_sets, int threads);
template <class T>
void normals(int threads, std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
             std::int64_t count);

}  // namespace patrac::emulated
