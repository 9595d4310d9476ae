// The facade of devices: whether there is one, inputs and data sets on it, and models whose chains run there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/run/device_model.hpp"
#include "model/data_view.hpp"
#include "model/model_spec.hpp"
#include "shared/likelihood.hpp"
#include "shared/purpose.hpp"

namespace patrac {

template <class T>
struct DataSet;

// "cuda" or, for tests, "emulated:N", a device of blocks of N = 1, 2, 4 .. host threads. Throws std::runtime_error with
// the reason where the device is not usable.
DeviceStatus device_status(const std::string& device);
// Barriers that the blocks of emulated devices have passed in this process: what a step waits for, for tests.
std::int64_t emulated_barriers();
// Layers of weights that a network on a device may have.
int max_device_layers();
// Takes over inputs in the device's memory, whose owner the source holds, or copies them there and releases them. CUDA
// reports the place of its memory; `stream`, as CUDA numbers it, is waited for unless it is 0.
std::shared_ptr<const DeviceInputs> take_inputs(const std::string& device, InputSource source, bool copy,
                                                std::uintptr_t stream = 0);
// A data set for the device, and those of one plan joined. Throws std::invalid_argument where plans differ. Of `data`
// targets and row weights are read; the data set holds on to `inputs`, which are without gaps where they are the
// host's.
template <class T>
std::shared_ptr<const DataSet<T>> flatten_for_device(const std::string& device, const ModelSpec& spec,
                                                     const DataView<T>& data, InputSource inputs);
template <class T>
std::unique_ptr<DeviceModel<T>> make_device_model(const std::string& device,
                                                  const std::vector<std::shared_ptr<const DataSet<T>>>& data_sets);
// As standard_normals(), for one step, computed on the device.
template <class T>
void device_normals(const std::string& device, std::uint64_t seed, std::uint32_t chain, std::uint64_t step,
                    Purpose purpose, T* out, std::int64_t count);

}  // namespace patrac
