// The memory of chains whose evaluations blocks share, and when they are shared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/model/data_set.hpp"
#include "cuda/run/device.hpp"
#include "cuda/wide/slabs.hpp"

namespace patrac::PATRAC_LEVEL {

// Chains that share evaluations at most.
inline constexpr std::int64_t max_sharing_chains = 32;

// Shared evaluations cost a few launches a step, so they are for chains that alone, a block each, would leave most
// multiprocessors idle, and for data of several tiles or a first layer on the matrix units.
template <class T>
bool shares_evaluations(std::int64_t chains, const DevicePlan<T>& plan) {
    constexpr int min_tiles = 4;
    return chains <= max_sharing_chains && (plan.n_tiles >= min_tiles || plan.wide.by_row);
}
// After a draw of several noise variances l and g are evaluated again, which blocks that work alone do.
template <class T>
bool shares_evaluations(const RunConfig& config, const DevicePlan<T>& plan) {
    return !config.collapse && config.variance.count() <= 1 && shares_evaluations(config.chains, plan);
}

template <class T>
class SlabMemory {
public:
    // `chains_of` is the launch of the same chains, a block each.
    SlabMemory(Device& device, const ChainLaunch<T>& chains_of, std::int64_t n_chains, bool coarse_gradient)
        : n_chains_(n_chains), work_{} {
        const DevicePlan<T>& plan = chains_of.plan;
        work_.slab = SlabWorkspace::of(plan, device.status().shared_bytes);
        work_.n_slabs = std::min(plan.n_tiles, max_slabs);
        work_.coarse_gradient = coarse_gradient;
        // A matter of K alone, as the slabs are of n. Wide gradients fill the device with one thread for each sum.
        constexpr int wide = 1 << 14, max_parts = 8, max_blocks = 1024;
        const int parts = chains_of.dim >= wide ? 1 : max_parts;
        const auto blocks = [](std::int64_t items, std::int64_t each) {
            return static_cast<int>(std::clamp<std::int64_t>((items + each - 1) / each, 1, max_blocks));
        };
        work_.reduce_parts = parts;
        work_.reduce_blocks = blocks(chains_of.dim, reduce_items / parts);
        work_.advance_blocks = blocks(chains_of.row / normals_per_block<T>, reduce_items);

        const std::int64_t sets = n_chains / chains_of.chains_of_set;
        std::vector<T> fixed(static_cast<std::size_t>(sets * plan.n_packed)), packed;
        device.download(fixed.data(), plan.packed, fixed.size() * sizeof(T));
        for (std::int64_t c = 0; c < n_chains; ++c) {
            const auto own = fixed.begin() + c / chains_of.chains_of_set * plan.n_packed;
            packed.insert(packed.end(), own, own + plan.n_packed);
        }
        packed_ = DeviceVector<T>(device, packed);
        const std::int64_t slabs = n_chains * work_.n_slabs;
        if (!work_.slab.is_shared) workspace_ = DeviceVector<T>(device, slabs * work_.slab.size);
        proposed_gradient_ = DeviceVector<T>(device, n_chains * chains_of.row);
        slab_gradient_ = DeviceVector<T>(device, uses_gradient(chains_of.kernel) ? slabs * chains_of.row : 1);
        slab_log_likelihood_ = DeviceVector<double>(device, slabs);
        ratio_sums_ = DeviceVector<double>(device, n_chains * work_.reduce_blocks * 3);
        states_ = DeviceVector<SlabState>(device, n_chains);
        if (plan.wide.by_row) {
            const FlatLayer& layer = plan.layers[0];
            constexpr int features_of_block = 256;
            const int blocks_of_split = (plan.wide.features + features_of_block) / features_of_block;
            work_.n_splits = std::clamp(max_slabs / blocks_of_split, 1, plan.wide.padded_rows / wide_depth);
            first_layer_ = DeviceVector<T>(device, n_chains * plan.n_tiles * layer.n_rows * plan.stride);
            wide_sums_ = DeviceVector<T>(device, n_chains * work_.n_splits * layer.n_rows * plan.wide.sums_pitch());
        }
        work_.first_layer = first_layer_.data();
        work_.wide_sums = wide_sums_.data();
        work_.slab_workspace = workspace_.data();
        work_.packed = packed_.data();
        work_.proposed_gradient = proposed_gradient_.data();
        work_.slab_gradient = slab_gradient_.data();
        work_.slab_log_likelihood = slab_log_likelihood_.data();
        work_.ratio_sums = ratio_sums_.data();
        work_.states = states_.data();
    }

    // The steps of `chains`, by blocks of `threads`.
    void launch(Device& device, const ChainLaunch<T>& chains, int threads) {
        static_cast<ChainLaunch<T>&>(work_) = chains;
        device.launch(work_, static_cast<int>(n_chains_), threads);
    }

private:
    std::int64_t n_chains_;
    SlabLaunch<T> work_;
    DeviceVector<T> first_layer_, wide_sums_, packed_, workspace_, proposed_gradient_, slab_gradient_;
    DeviceVector<double> slab_log_likelihood_, ratio_sums_;
    DeviceVector<SlabState> states_;
};

}  // namespace patrac::PATRAC_LEVEL
