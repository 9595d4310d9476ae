// A device as callers see it: its status, its memory, and a model whose chains run on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/model/device_place.hpp"
#include "cuda/model/input_matrix.hpp"
#include "schedule/run_config.hpp"

namespace patrac {

// A device, or the reason why there is none.
struct DeviceStatus {
    bool usable = false;
    std::string reason;  // if not usable: built without, no driver, no device
    std::string name;
    int multiprocessors = 0;
    std::int64_t memory_bytes = 0;
    int shared_bytes = 0;  // of a block, at most
};

// How a model's chains are laid over the device.
struct DeviceLayout {
    int threads = 0;                    // of a block
    int tile_rows = 0;                  // passed over at once
    int blocks_of_chain = 0;            // that share an evaluation of l
    std::int64_t workspace_bytes = 0;   // of a block
    bool in_shared_memory = false;      // where they are
    bool parameters_in_shared = false;  // among them, or else read from the device's memory
    const char* wide_inputs = "none";   // of a first layer on the matrix units: "bytes" or "floats"
};

// Memory of a device that a run left to its caller. It outlives the model.
class DeviceMemory {
public:
    virtual ~DeviceMemory() = default;

    virtual void* data() const = 0;
    virtual DevicePlace place() const = 0;
    // `height` rows of `width` bytes, `pitch` bytes apart from `from` on, to rows without gaps.
    virtual void download(void* to, const void* from, std::size_t pitch, std::size_t width,
                          std::size_t height) const = 0;
};

// Inputs in a device's memory, for data sets to read there.
class DeviceInputs {
public:
    virtual ~DeviceInputs() = default;

    // Without an owner where the memory is its own: whoever reads the source keeps these inputs.
    virtual const InputSource& source() const = 0;
    virtual InputFindings inspect(double max_magnitude) const = 0;
    virtual void download(void* to) const = 0;  // (n_rows, n_columns) of the source's type
};

// One data set, or several of one plan, in a device's memory.
template <class T>
class DeviceModel {
public:
    virtual ~DeviceModel() = default;

    virtual std::int64_t dim() const = 0;
    virtual std::int64_t data_sets() const = 0;
    virtual std::int64_t bytes() const = 0;  // of the device's memory, between runs
    virtual DeviceLayout layout(bool persists, std::int64_t chains) const = 0;
    // As Model::evaluate does, of the first data set; a coarse gradient as chains with RunConfig::coarse_gradient have.
    virtual void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient,
                          bool coarse_gradient) = 0;
    // As Model::sample does, with pcn, pcnl and mgrad. The chains of each data set follow those of the one before; each
    // has its seed, in place of config.seed, its prior_variance (data sets, K) and its config.variance. All are at the
    // same step at any time: a phase of the warm-up that may end early ends where each data set's chains agree. Where
    // `theta` is not null it gets the array (chains, draws, K), which stays on the device, and buffers.theta is not
    // written.
    virtual bool sample(const RunConfig& config, const std::vector<std::uint64_t>& seeds, const RunBuffers<T>& buffers,
                        const Monitor& monitor, std::shared_ptr<const DeviceMemory>* theta = nullptr) = 0;
};

// In place of a stream: all of a device's.
inline constexpr std::uintptr_t all_streams = ~std::uintptr_t{0};

}  // namespace patrac
