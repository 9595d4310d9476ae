// A model in a device's memory: what evaluations and runs on the device start from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "run.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class ResidentModel final : public DeviceModel<T> {
public:
    ResidentModel(std::shared_ptr<Device> device, FlatModel<T> flat)
        : device_(std::move(device)),
          host_plan_(std::move(flat.plan)),
          variance_(flat.variance),
          blocks_(*device_, flat.blocks),
          indices_(*device_, flat.indices),
          position_(*device_, flat.position),
          packed_(*device_, flat.packed),
          tiles_(*device_, flat.tiles),
          precision_(*device_, flat.precision.empty() ? std::vector<T>(1) : flat.precision),
          constants_(*device_, std::vector<double>{flat.constant, 0.0}),
          plan_{} {
        if (flat.layers.size() > most_layers)
            throw std::invalid_argument("device: at most " + std::to_string(most_layers) +
                                        " layers run on a device; use device=\"cpu\"");
        plan_.activation = flat.activation;
        plan_.likelihood = flat.likelihood;
        plan_.dim = flat.dim;
        plan_.n_layers = static_cast<int>(flat.layers.size());
        plan_.n_outputs = flat.n_outputs;
        plan_.n_packed = static_cast<int>(flat.packed.size());
        plan_.n_value_rows = flat.n_value_rows;
        plan_.keeps_pre = flat.keeps_pre;
        std::copy(flat.layers.begin(), flat.layers.end(), plan_.layers);
        plan_.blocks = blocks_.data();
        plan_.indices = indices_.data();
        plan_.position = position_.data();
        plan_.packed = packed_.data();
        plan_.tiles = tiles_.data();
        plan_.precision = precision_.data();
        plan_.constants = constants_.data();
        plan_.n_rows = flat.n_rows;
        plan_.n_tiles = flat.n_tiles;
        plan_.tile_size = flat.tile_size;
        plan_.stride = flat.stride;
        plan_.targets = flat.targets;
        plan_.row_weights = flat.row_weights;
        std::int64_t widest = 1;
        for (const FlatLayer& layer : flat.layers) widest = std::max<std::int64_t>(widest, layer.n_rows);
        threads_ = device_->block_threads(widest, std::min(flat.n_rows, flat.stride));
    }

    std::int64_t dim() const override { return plan_.dim; }
    DeviceLayout layout(bool persists, std::int64_t chains) const override {
        constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
        if (shares_evaluations(chains, plan_.n_tiles)) {
            const SlabWorkspace slab = SlabWorkspace::of(plan_, device_->status().shared_bytes);
            return {threads_,          plan_.stride,   std::min(plan_.n_tiles, most_slabs),
                    slab.size * bytes, slab.is_shared, slab.packed >= 0};
        }
        const WorkspaceLayout layout = WorkspaceLayout::of(plan_, plan_.dim, persists, nullptr);
        const bool shared = DeviceChains<T>::fits_shared(*device_, layout);
        return {threads_, plan_.stride, 1, layout.size * bytes, shared, shared};
    }

    void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient) override {
        const std::vector<double> ones(static_cast<std::size_t>(plan_.dim), 1.0);
        DeviceChains<T> memory(*device_, plan_, batch, ones.data(), theta, false, nullptr);
        const DeviceArray<std::uint64_t> seeds(*device_, std::int64_t{1});
        memory.launch.kernel = gradient ? KernelKind::pcnl : KernelKind::pcn;
        memory.launch.seeds = seeds.data();
        memory.launch.start = true;
        memory.launch.steps = 1;
        if (shares_evaluations(batch, plan_.n_tiles))
            SlabMemory<T>(*device_, memory.launch, batch).launch(*device_, memory.launch, threads_);
        else
            device_->launch(memory.launch, static_cast<int>(batch), threads_);
        std::vector<DeviceChain> chains(static_cast<std::size_t>(batch));
        memory.chains.download(chains.data());
        for (std::size_t b = 0; b < chains.size(); ++b) log_likelihood[b] = chains[b].log_likelihood;
        if (gradient) memory.download_gradient(*device_, gradient, batch);
    }

    bool sample(const RunConfig& config, const RunBuffers<T>& buffers, const Monitor& monitor) override {
        if (!config.collapse) return DeviceRun<T>(*device_, plan_, config, buffers, nullptr, threads_).run(monitor);
        const FlatCollapse collapse = FlatCollapse::make(host_plan_, buffers.prior_variance, variance_);
        return DeviceRun<T>(*device_, plan_, config, buffers, &collapse, threads_).run(monitor);
    }

private:
    std::shared_ptr<Device> device_;
    Plan host_plan_;
    std::vector<double> variance_;  // (m,) of the noise, Gaussian
    DeviceArray<FlatGradientBlock> blocks_;
    DeviceArray<int> indices_, position_;
    DeviceArray<T> packed_, tiles_, precision_;
    DeviceArray<double> constants_;
    DevicePlan<T> plan_;
    int threads_;
};

template <class T>
void normals_on(Device& device, std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
                std::int64_t count) {
    DeviceArray<T> normals(device, count);
    device.launch(NormalsLaunch<T>{stream_key(seed, chain), purpose, step, count, normals.data()}, 1, 128);
    normals.download(out);
}

}  // namespace patrac::PATRAC_LEVEL
