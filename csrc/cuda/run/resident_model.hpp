// A model in a device's memory: what evaluations and runs on the device start from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/run/fold.hpp"
#include "cuda/run/readable_inputs.hpp"
#include "cuda/run/run.hpp"
#include "cuda/run/wide_inputs.hpp"

namespace patrac::PATRAC_LEVEL {

// An array that a run left on its device; all work on it is done.
template <class T>
class LeftArray final : public DeviceMemory {
public:
    LeftArray(std::shared_ptr<Device> device, DeviceVector<T> array)
        : device_(std::move(device)), array_(std::move(array)) {}

    void* data() const override { return array_.data(); }
    DevicePlace place() const override { return device_->place(); }
    void download(void* to, const void* from, std::size_t pitch, std::size_t width, std::size_t height) const override {
        device_->download_beside(to, width, from, pitch, width, height);
    }

private:
    std::shared_ptr<Device> device_;  // outlives the array
    DeviceVector<T> array_;
};

template <class T>
class ResidentModel final : public DeviceModel<T> {
public:
    // At least one data set; all of one plan.
    ResidentModel(std::shared_ptr<Device> device, const DataSets<T>& data_sets)
        : device_(std::move(device)), data_sets_(std::ssize(data_sets)), plan_{} {
        const DataSet<T>& flat = *data_sets.front();
        for (std::size_t d = 1; d < data_sets.size(); ++d) check_alike(flat, *data_sets[d], d);
        host_plan_ = flat.plan;
        gradients_ = DeviceVector<FlatDenseGradient>(*device_, flat.gradients);
        indices_ = DeviceVector<int>(*device_, flat.indices);
        position_ = DeviceVector<int>(*device_, flat.position);
        packed_ = joined(data_sets, &DataSet<T>::packed);
        tiles_ = joined(data_sets, &DataSet<T>::tiles);
        parameters_ = joined(data_sets, &DataSet<T>::parameters);
        std::vector<double> constants;
        for (const auto& data_set : data_sets) {
            constants.insert(constants.end(), {data_set->constant, 0.0});
            variances_.push_back(data_set->variance);
            weights_.push_back(data_set->weight);
        }
        constants_ = DeviceVector<double>(*device_, constants);
        if (flat.layers.size() > max_layers)
            throw std::invalid_argument("device: at most " + std::to_string(max_layers) +
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
        plan_.gradients = gradients_.data();
        plan_.indices = indices_.data();
        plan_.position = position_.data();
        plan_.packed = packed_.data();
        plan_.packed_step = std::ssize(flat.packed);
        plan_.tiles = tiles_.data();
        plan_.tiles_step = std::ssize(flat.tiles);
        plan_.inputs_step = std::int64_t{flat.n_tiles} * flat.layers.front().n_constant * flat.stride;
        plan_.parameters = parameters_.data();
        plan_.parameters_step = std::ssize(flat.parameters);
        plan_.constants = constants_.data();
        plan_.n_rows = flat.n_rows;
        plan_.n_tiles = flat.n_tiles;
        plan_.tile_size = flat.tile_size;
        plan_.stride = flat.stride;
        plan_.targets = flat.targets;
        plan_.row_weights = flat.row_weights;
        for (std::int64_t d = 0; d < data_sets_; ++d) lay_out(d, *data_sets[static_cast<std::size_t>(d)]);
        std::int64_t widest = 1;
        for (const FlatLayer& layer : flat.layers) widest = std::max<std::int64_t>(widest, layer.n_rows);
        threads_ = device_->block_threads(widest, std::min(flat.n_rows, flat.stride));
    }

    std::int64_t dim() const override { return plan_.dim; }
    std::int64_t data_sets() const override { return data_sets_; }
    std::int64_t bytes() const override {
        const std::lock_guard lock(busy_);  // a run may make tiles of inputs
        return gradients_.bytes() + indices_.bytes() + position_.bytes() + packed_.bytes() + tiles_.bytes() +
               inputs_.bytes() + parameters_.bytes() + constants_.bytes() + wide_.bytes();
    }
    DeviceLayout layout(bool persists, std::int64_t chains) const override {
        constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
        if (shares_evaluations(chains, plan_)) {
            const SlabWorkspace slab = SlabWorkspace::of(plan_, device_->status().shared_bytes);
            return {threads_,          plan_.stride,   std::min(plan_.n_tiles, max_slabs),
                    slab.size * bytes, slab.is_shared, slab.packed >= 0,
                    wide_inputs()};
        }
        const WorkspaceLayout layout =
            DeviceChains<T>::layout_of(*device_, plan_, plan_.dim, persists, nullptr, chains);
        const bool shared = DeviceChains<T>::fits_shared(*device_, layout);
        return {threads_, plan_.stride, 1, layout.size * bytes, shared, shared, "none"};
    }

    void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient,
                  bool coarse_gradient) override {
        RunConfig config;
        config.chains = batch;
        if (coarse_gradient) check_coarse(config);
        const std::lock_guard lock(busy_);
        const bool shares = shares_evaluations(batch, plan_);
        if (!shares) need_tiles();
        const std::vector<double> ones(static_cast<std::size_t>(plan_.dim), 1.0);
        DeviceChains<T> memory(*device_, plan_, 1, batch, ones.data(), nullptr, theta, false, {});
        const DeviceVector<std::uint64_t> seeds(*device_, std::int64_t{1});
        memory.launch.kernel = gradient ? KernelKind::pcnl : KernelKind::pcn;
        memory.launch.seeds = seeds.data();
        memory.launch.start = true;
        memory.launch.steps = 1;
        if (shares)
            SlabMemory<T>(*device_, memory.launch, batch, coarse_gradient).launch(*device_, memory.launch, threads_);
        else
            device_->launch(memory.launch, static_cast<int>(batch), threads_);
        std::vector<DeviceChain> chains(static_cast<std::size_t>(batch));
        memory.chains.download(chains.data());
        for (std::size_t b = 0; b < chains.size(); ++b) log_likelihood[b] = chains[b].log_likelihood;
        if (gradient) memory.download_gradient(*device_, gradient, batch);
    }

    bool sample(const RunConfig& config, const std::vector<std::uint64_t>& seeds, const RunBuffers<T>& buffers,
                const Monitor& monitor, std::shared_ptr<const DeviceMemory>* theta) override {
        // Kernels of other families have no shrink, and so no move on a device.
        if (std::isnan(shrink_of(config.kernel, 1.0, 1.0)))
            throw std::invalid_argument("kernel: only kernels of the Crank-Nicolson family run on a device");
        if (config.variance.sampled() && variances_.front().empty())
            throw std::invalid_argument("likelihood: a device samples the variance of Gaussian noise alone");
        if (config.variance.sampled() && config.variance.sets != data_sets_)
            throw std::invalid_argument("likelihood: each data set has sampled variances of its own");
        if (config.scales.sampled())
            throw std::invalid_argument("prior: a device does not sample the scales of the prior");
        if (config.coarse_gradient) check_coarse(config);
        const std::lock_guard lock(busy_);
        std::vector<FlatCollapse> collapse;
        for (std::size_t d = 0; config.collapse && d < variances_.size(); ++d) {
            const double* const prior_variance = buffers.prior_variance + static_cast<std::int64_t>(d) * plan_.dim;
            // One variance for all outputs leaves them equal, whatever it is.
            const std::vector<double> variance =
                config.variance.sampled() ? std::vector<double>(variances_[d].size(), 1.0) : variances_[d];
            collapse.push_back(
                FlatCollapse::make(*host_plan_, prior_variance, variance, weights_[d], config.variance.count() > 1));
            if (!collapse.back().is_alike(collapse.front()))
                throw std::invalid_argument("posts: data set " + std::to_string(d) +
                                            " shares its output weights' priors in another way than the first; sample "
                                            "it alone or without collapse=True");
        }
        if (!shares_evaluations(config, plan_)) need_tiles();
        DeviceRun<T> run(*device_, plan_, config, seeds, buffers, theta != nullptr, collapse, weights_, threads_);
        const bool completed = run.run(monitor);
        if (theta) *theta = std::make_shared<LeftArray<T>>(device_, run.take_theta());
        return completed;
    }

private:
    static void check_alike(const DataSet<T>& a, const DataSet<T>& b, std::size_t index) {
        const auto layers_alike = [](const FlatLayer& x, const FlatLayer& y) {
            return x.n_rows == y.n_rows && x.n_varying == y.n_varying && x.n_constant == y.n_constant &&
                   x.weights == y.weights && x.n_gradients == y.n_gradients;
        };
        const char* differs = nullptr;
        if (a.n_rows != b.n_rows)
            differs = "number of rows";
        else if (a.likelihood != b.likelihood || a.activation != b.activation)
            differs = "likelihood or activation";
        else if (a.dim != b.dim || a.indices != b.indices || a.position != b.position ||
                 !std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(), layers_alike))
            differs = "network or architecture";
        if (differs)
            throw std::invalid_argument("posts: data set " + std::to_string(index) + " differs from the first in its " +
                                        differs + "; those of one run must be alike");
    }

    // Raises an error unless the gradient of a run can be coarse: that of a wide first layer whose evaluations blocks
    // share, and not rescaled, with which rounding does not commute.
    void check_coarse(const RunConfig& config) const {
        const auto number = [](auto count) { return std::to_string(count); };
        std::string got;
        if (config.variance.sampled())
            got = "sampled noise variances";
        else if (config.collapse)
            got = "collapse=True";
        else if (data_sets_ > 1)
            got = number(data_sets_) + " posteriors in one run";
        else if (std::is_same_v<T, double>)
            got = "dtype=\"float64\"";
        else if (!plan_.wide.by_row)
            got = "a first layer that reads " + number(plan_.layers[0].n_constant) + " inputs of " +
                  number(plan_.n_rows) + " rows";
        else if (!shares_evaluations(config, plan_))
            got = number(config.chains) + " chains";
        if (got.empty()) return;
        throw std::invalid_argument(
            "kernel: gradient=\"coarse\" is supported only where the first layer uses matrix units: one posterior in "
            "float32 "
            "with a fixed noise variance, a first layer of " +
            number(WideMemory::min_features) + " inputs or more and " + number(WideMemory::min_inputs) +
            " or more over all rows, at most " + number(max_sharing_chains) + " chains, nothing integrated out; got " +
            got + ". Use gradient=\"exact\"");
    }

    // What evaluations read of a data set's inputs.
    void lay_out(std::int64_t d, const DataSet<T>& flat) {
        const ReadableInputs readable(*device_, flat.inputs);
        Fold<T>(*device_, flat).fill(readable.matrix, tiles_.data() + d * plan_.tiles_step);
        const DeviceVector<int> columns(*device_, flat.plan->layers.front().constant_sources);
        if constexpr (std::is_same_v<T, float>)
            if (data_sets_ == 1) {
                wide_ = WideMemory(*device_, flat, readable.matrix, columns.data());
                plan_.wide = wide_.inputs;
            }
        if (!plan_.wide.by_row) put_inputs(d, readable.matrix, columns.data());
        device_->wait();  // what was sent is released next
    }

    // The first layer's constants of data set d as tiles.
    void put_inputs(std::int64_t d, const InputMatrix& from, const int* columns) {
        if (!plan_.inputs) {
            inputs_ = DeviceVector<T>(*device_, std::max<std::int64_t>(1, data_sets_ * plan_.inputs_step));
            plan_.inputs = inputs_.data();
        }
        const FlatLayer& layer = plan_.layers[0];
        if (layer.n_constant == 0) return;
        device_->launch(tile_copy(from, plan_.n_rows, columns, layer.n_constant, plan_.stride, plan_.n_tiles,
                                  std::int64_t{layer.n_constant} * plan_.stride,
                                  inputs_.data() + d * plan_.inputs_step));
    }

    // Blocks that evaluate alone read the inputs of a wide first layer from tiles, made when they are first needed.
    void need_tiles() {
        if (plan_.wide.by_row && !plan_.inputs) put_inputs(0, wide_.by_row(), nullptr);
    }

    DeviceVector<T> joined(const DataSets<T>& data_sets, std::vector<T> DataSet<T>::* values) const {
        if (data_sets.size() == 1 && !(*data_sets.front().*values).empty())
            return DeviceVector<T>(*device_, *data_sets.front().*values);
        std::vector<T> all;
        for (const auto& data_set : data_sets)
            all.insert(all.end(), ((*data_set).*values).begin(), ((*data_set).*values).end());
        if (all.empty()) all.resize(1);
        return DeviceVector<T>(*device_, all);
    }

    const char* wide_inputs() const { return !plan_.wide.by_row ? "none" : plan_.wide.bytes ? "bytes" : "floats"; }

    mutable std::mutex busy_;  // the device's stream takes one run at a time
    std::shared_ptr<Device> device_;
    std::int64_t data_sets_;
    std::shared_ptr<const Plan> host_plan_;
    std::vector<std::vector<double>> variances_;  // by data set: (m,) of the noise, Gaussian
    std::vector<double> weights_;                 // by data set: the sum of the row weights
    DeviceVector<FlatDenseGradient> gradients_;
    DeviceVector<int> indices_, position_;
    DeviceVector<T> packed_, tiles_, inputs_, parameters_;
    DeviceVector<double> constants_;
    WideMemory wide_;
    DevicePlan<T> plan_;
    int threads_;
};

template <class T>
void normals_on(Device& device, std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
                std::int64_t count) {
    DeviceVector<T> normals(device, count);
    device.launch(NormalsLaunch<T>{stream_key(seed, chain), purpose, step, count, normals.data()}, 1, 128);
    normals.download(out);
}

}  // namespace patrac::PATRAC_LEVEL
