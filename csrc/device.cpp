// Finds the device of a name and forwards the facade's functions to it.
#include "device.hpp"

#include <charconv>
#include <stdexcept>
#include <utility>

#include "cuda/device/cuda_device.hpp"
#include "cuda/device/emulated.hpp"
#include "cuda/model/data_set.hpp"

namespace patrac {
namespace {

constexpr std::string_view emulated_prefix = "emulated:";

bool is_emulated(const std::string& device) {
    return device.starts_with(emulated_prefix);
}

int emulated_threads(const std::string& device) {
    int threads = 0;
    const char* const end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + emulated_prefix.size(), end, threads);
    if (error != std::errc{} || stop != end || threads < 1 || threads > 128 || (threads & (threads - 1)) != 0)
        throw std::invalid_argument("device: an emulated block has 1, 2, 4 .. 128 threads; got '" + device + "'");
    return threads;
}

void check_usable(const std::string& device) {
    if (const DeviceStatus status = device_status(device); !status.usable) throw std::runtime_error(status.reason);
}

// Of one chain: two blocks share a multiprocessor's shared memory on devices of 227 KB.
constexpr std::int64_t workspace_bytes = 110 * 1024, emulated_workspace_bytes = 64 * 1024;

}  // namespace

DeviceStatus device_status(const std::string& device) {
    if (is_emulated(device)) return emulated::status(emulated_threads(device));
    if (device == "cuda") return cuda::status();
    throw std::invalid_argument("device: no device '" + device + "'");
}

std::int64_t emulated_barriers() {
    return emulated::barriers();
}

int max_device_layers() {
    return max_layers;
}

std::shared_ptr<const DeviceInputs> take_inputs(const std::string& device, InputSource source, bool copy,
                                                std::uintptr_t stream) {
    check_usable(device);
    return is_emulated(device) ? emulated::take_inputs(std::move(source), copy)
                               : cuda::take_inputs(std::move(source), copy, stream);
}

template <class T>
std::shared_ptr<const DataSet<T>> flatten_for_device(const std::string& device, const ModelSpec& spec,
                                                     const DataView<T>& data, InputSource inputs) {
    spec.check();
    check_usable(device);
    const std::int64_t bytes = is_emulated(device) ? emulated_workspace_bytes : workspace_bytes;
    return std::make_shared<DataSet<T>>(flatten(spec, data, std::move(inputs), bytes));
}

template <class T>
std::unique_ptr<DeviceModel<T>> make_device_model(const std::string& device,
                                                  const std::vector<std::shared_ptr<const DataSet<T>>>& data_sets) {
    check_usable(device);
    if (is_emulated(device)) return emulated::make_model(data_sets, emulated_threads(device));
    return cuda::make_model(data_sets);
}

template <class T>
void device_normals(const std::string& device, std::uint64_t seed, std::uint32_t chain, std::uint64_t step,
                    Purpose purpose, T* out, std::int64_t count) {
    check_usable(device);
    if (is_emulated(device))
        emulated::normals(emulated_threads(device), seed, chain, step, purpose, out, count);
    else
        cuda::normals(seed, chain, step, purpose, out, count);
}

#define PATRAC_INSTANTIATE(T)                                                                                     \
    template std::shared_ptr<const DataSet<T>> flatten_for_device<T>(const std::string&, const ModelSpec&,        \
                                                                     const DataView<T>&, InputSource);            \
    template std::unique_ptr<DeviceModel<T>> make_device_model<T>(                                                \
        const std::string&, const std::vector<std::shared_ptr<const DataSet<T>>>&);                               \
    template void device_normals<T>(const std::string&, std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, \
                                    std::int64_t);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace patrac
