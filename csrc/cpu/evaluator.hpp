// Log-likelihood and gradient over all tiles: forward, likelihood and reverse of one tile back to back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "packed.hpp"
#include "contraction.hpp"
#include "likelihood.hpp"
#include "pack.hpp"

namespace patrac::PATRAC_LEVEL {

// The likelihood with its constants in the engine's terms.
template <class T>
struct LikelihoodTerms {
    LikelihoodKind kind;
    std::vector<T> precision;  // (m,), Gaussian
    double constant = 0.0;     // what the tiles leave out of the normalised log-likelihood
};

// Packed weights and the workspace of one tile. One evaluator serves one thread at a time.
template <class T>
class Evaluator {
public:
    using V = Vec<T>;

    Evaluator(const Plan& plan, std::int64_t stride) : plan_(plan), stride_(stride), zeros_(stride) {
        std::int64_t widest = 1;
        with_activation(plan.activation, [this](auto zeta) { keeps_pre_ = !decltype(zeta)::from_value; });
        for (const PlanLayer& layer : plan_.layers) {
            LayerWork work;
            work.weights = converted(layer.weights);
            work.biases = converted(layer.biases);
            work.value = AlignedArray<T>(layer.n_rows() * stride);
            if (keeps_pre_) work.pre = AlignedArray<T>(layer.n_rows() * stride);
            work.offset_index.assign(static_cast<std::size_t>(layer.n_rows()), -1);
            for (std::size_t o = 0; o < layer.offset_rows.size(); ++o)
                work.offset_index[static_cast<std::size_t>(layer.offset_rows[o])] = static_cast<std::int64_t>(o);
            work.start.resize(static_cast<std::size_t>(layer.n_rows()));
            work.weight_total = AlignedArray<double>(
                static_cast<std::int64_t>(layer.gradient_rows.size() * layer.gradient_sources.size()));
            work.bias_total = AlignedArray<double>(layer.n_rows());
            widest = std::max(widest, layer.n_rows());
            layers_.push_back(std::move(work));
        }
        delta_ = AlignedArray<T>(widest * stride);
        delta_below_ = AlignedArray<T>(widest * stride);
    }

    // l(theta), and g (K,) unless null.
    double evaluate(const T* theta, const PackedData<T>& data, const LikelihoodTerms<T>& likelihood, T* gradient) {
        return with_activation(plan_.activation, [&](auto zeta) {
            using Zeta = decltype(zeta);
            set_theta(theta);
            double total = likelihood.constant;
            for (std::int64_t t = 0; t < data.n_tiles; ++t) {
                forward<Zeta>(data.tile(t), data.layout, data.vectors_in_tile(t));
                total += likelihood_of_tile(data, t, likelihood);
                if (gradient) reverse<Zeta>(data.tile(t), data.layout, data.vectors_in_tile(t), t == 0);
            }
            if (gradient) gather(gradient);
            return total;
        });
    }

    // f (n, m) row-major at the rows of `data`.
    void predict(const T* theta, const PackedData<T>& data, T* f) {
        with_activation(plan_.activation, [&](auto zeta) {
            set_theta(theta);
            for (std::int64_t t = 0; t < data.n_tiles; ++t) {
                forward<decltype(zeta)>(data.tile(t), data.layout, data.vectors_in_tile(t));
                T* const target = f + t * stride_ * plan_.n_outputs;
                for (std::int64_t r = 0; r < data.rows_in_tile(t); ++r)
                    for (std::int64_t c = 0; c < plan_.n_outputs; ++c)
                        target[r * plan_.n_outputs + c] = layers_.back().value[c * stride_ + r];
            }
        });
    }

private:
    struct LayerWork {
        AlignedArray<T> weights;                 // (rows, sources)
        AlignedArray<T> biases;                  // (rows,)
        AlignedArray<T> value;                   // (rows, stride): activations; f in the output layer
        AlignedArray<T> pre;                     // (rows, stride): before the activation, where its derivative needs it
        std::vector<std::int64_t> offset_index;  // (rows,): position among the tile's offsets, or -1
        std::vector<const T*> start;             // (rows,): the offset of each row in the current tile, or zeros
        AlignedArray<double> weight_total;       // gradient block, summed over tiles
        AlignedArray<double> bias_total;         // (rows,)
    };

    static AlignedArray<T> converted(const std::vector<double>& values) {
        AlignedArray<T> result(static_cast<std::int64_t>(values.size()));
        std::transform(values.begin(), values.end(), result.data(), [](double x) { return static_cast<T>(x); });
        return result;
    }

    void set_theta(const T* theta) {
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            for (const Run& run : plan_.layers[l].weight_runs)
                std::copy_n(theta + run.theta, run.length, layers_[l].weights.data() + run.packed);
            for (const Run& run : plan_.layers[l].bias_runs)
                std::copy_n(theta + run.theta, run.length, layers_[l].biases.data() + run.packed);
        }
    }

    void gather(T* gradient) const {
        const auto copy = [gradient](const std::vector<Run>& runs, const AlignedArray<double>& totals) {
            for (const Run& run : runs)
                for (std::int64_t i = 0; i < run.length; ++i)
                    gradient[run.theta + i] = static_cast<T>(totals[run.packed + i]);
        };
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            copy(plan_.layers[l].gradient_runs, layers_[l].weight_total);
            copy(plan_.layers[l].bias_runs, layers_[l].bias_total);
        }
    }

    // Values of the layer below that vary, then the tile's constants.
    void sources_of(std::size_t l, const T* tile, const TileLayout& layout, Sources<T>* groups) const {
        groups[0] = {l > 0 ? layers_[l - 1].value.data() : nullptr, plan_.layers[l].n_varying()};
        groups[1] = {tile + layout.constants[l], plan_.layers[l].n_constant()};
    }

    template <class Zeta>
    void forward(const T* tile, const TileLayout& layout, std::int64_t n_vectors) {
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const PlanLayer& layer = plan_.layers[l];
            LayerWork& work = layers_[l];
            Sources<T> groups[2];
            sources_of(l, tile, layout, groups);
            for (std::size_t r = 0; r < work.start.size(); ++r)
                work.start[r] = work.offset_index[r] < 0 ? zeros_.data()
                                                         : tile + layout.offsets[l] + work.offset_index[r] * stride_;
            const T* const bias = work.biases.data();
            const T* const* const start = work.start.data();
            const auto init = [bias, start](std::int64_t o, std::int64_t row) {
                return broadcast<V>(bias[o]) + load<V>(start[o] + row);
            };
            const bool is_output = l + 1 == layers_.size();
            const auto finish = [&](std::int64_t o, T* value) {
                if (is_output) return;
                T* const pre = keeps_pre_ ? work.pre.data() + o * stride_ : nullptr;
                for (std::int64_t k = 0; k < n_vectors * lanes_v<V>; k += lanes_v<V>) {
                    const V z = load<V>(value + k);
                    if constexpr (!Zeta::from_value) store<V>(pre + k, z);
                    store<V>(value + k, Zeta::value(z));
                }
            };
            contract<T>(layer.n_rows(), work.weights.data(), layer.n_sources(), 1, groups, 2, stride_, n_vectors,
                        work.value.data(), init, finish);
        }
    }

    // Writes dl/df of the tile to delta_.
    double likelihood_of_tile(const PackedData<T>& data, std::int64_t t, const LikelihoodTerms<T>& likelihood) {
        const T* const tile = data.tile(t);
        const OutputTile<T> output{layers_.back().value.data(),    delta_.data(),   tile + data.layout.targets,
                                   tile + data.layout.row_weights, plan_.n_outputs, stride_,
                                   data.vectors_in_tile(t)};
        switch (likelihood.kind) {
            case LikelihoodKind::categorical: return categorical_tile(output);
            case LikelihoodKind::bernoulli: return bernoulli_tile(output);
            case LikelihoodKind::gaussian: break;
        }
        return gaussian_tile(output, likelihood.precision.data());
    }

    // delta_ holds dl/d(pre-activation) of the layer at hand: its gradient, then the layer below. The first tile starts
    // the sums.
    template <class Zeta>
    void reverse(const T* tile, const TileLayout& layout, std::int64_t n_vectors, bool first) {
        for (std::size_t l = layers_.size(); l-- > 0;) {
            const PlanLayer& layer = plan_.layers[l];
            accumulate_gradient(l, tile, layout, n_vectors, first);
            if (layer.n_varying() == 0) return;
            const LayerWork& below = layers_[l - 1];
            const Sources<T> group{delta_.data(), layer.n_rows()};
            const auto zero = [](std::int64_t, std::int64_t) { return V{}; };
            const T* const argument = (Zeta::from_value ? below.value : below.pre).data();
            const auto finish = [&](std::int64_t node, T* delta) {
                const T* const at = argument + node * stride_;
                for (std::int64_t k = 0; k < n_vectors * lanes_v<V>; k += lanes_v<V>)
                    store<V>(delta + k, load<V>(delta + k) * Zeta::derivative(load<V>(at + k)));
            };
            contract<T>(layer.n_varying(), layers_[l].weights.data(), 1, layer.n_sources(), &group, 1, stride_,
                        n_vectors, delta_below_.data(), zero, finish);
            std::swap(delta_, delta_below_);
        }
    }

    void accumulate_gradient(std::size_t l, const T* tile, const TileLayout& layout, std::int64_t n_vectors,
                             bool first) {
        const PlanLayer& layer = plan_.layers[l];
        LayerWork& work = layers_[l];
        Sources<T> groups[2];
        sources_of(l, tile, layout, groups);
        const auto delta = [&](std::int64_t i) {
            return delta_.data() + layer.gradient_rows[static_cast<std::size_t>(i)] * stride_;
        };
        const auto source = [&](std::int64_t j) {
            const std::int64_t s = layer.gradient_sources[static_cast<std::size_t>(j)];
            return s < groups[0].count ? groups[0].base + s * stride_
                                       : groups[1].base + (s - groups[0].count) * stride_;
        };
        const auto rows = static_cast<std::int64_t>(layer.gradient_rows.size());
        const auto columns = static_cast<std::int64_t>(layer.gradient_sources.size());
        // Four at a time run along the longer side.
        if (columns < 4 && rows > columns)
            accumulate_outer<T>(columns, source, rows, delta, n_vectors, first, work.weight_total.data(), 1, columns);
        else
            accumulate_outer<T>(rows, delta, columns, source, n_vectors, first, work.weight_total.data(), columns, 1);
        for (const Run& run : layer.bias_runs) {
            const auto biased = [&](std::int64_t i) { return delta_.data() + (run.packed + i) * stride_; };
            accumulate_rows<T>(run.length, biased, n_vectors, first, work.bias_total.data() + run.packed);
        }
    }

    const Plan& plan_;  // outlives the evaluator
    std::int64_t stride_;
    bool keeps_pre_ = false;
    AlignedArray<T> zeros_;
    std::vector<LayerWork> layers_;
    AlignedArray<T> delta_, delta_below_;
};

}  // namespace patrac::PATRAC_LEVEL
