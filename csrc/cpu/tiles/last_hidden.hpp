// A last hidden layer that reads few varying nodes and is read by one output, forward and backward in one loop.
//
// In Mix all nodes of the last hidden layer vary, most of them through fixed weights from the few Bayesian nodes below.
// dl/d(activation below) is dl/df times a sum that does not wait for f: node by node, that sum and f are made together,
// and what no dense gradient reads is not stored, but beside one that is, in a vector of two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

#include "cpu/tiles/contraction.hpp"
#include "cpu/tiles/packed.hpp"
#include "cpu/tiles/tile_workspace.hpp"
#include "model/collapse.hpp"
#include "model/plan.hpp"
#include "shared/activation.hpp"

namespace patrac::PATRAC_LEVEL {

// Largest number of varying nodes below.
inline constexpr int max_below = 5;

template <class T>
class LastHidden {
public:
    using V = Vec<T>;

    // Applies where the plan has such a layer. `collapse`: of a collapsed output layer, or null.
    LastHidden(const Plan& plan, std::int64_t stride, const CollapsePlan* collapse = nullptr) {
        if (plan.activation != Activation::tanh || plan.n_outputs != 1 || plan.layers.size() < 3) return;
        const PlanLayer &layer = plan.layers[plan.layers.size() - 2], &output = plan.layers.back();
        if (layer.n_varying() == 0 || layer.n_varying() > max_below) return;
        if (layer.n_constant() != 0 || output.n_constant() != 0) return;
        is_kept_.assign(layer.rows.size(), 0);
        for (const DenseGradient& dense : layer.gradient)
            for (const std::int32_t row : dense.rows) is_kept_[static_cast<std::size_t>(row)] = 1;
        for (const DenseGradient& dense : output.gradient)
            for (const std::int32_t source : dense.sources)
                if (source < output.n_varying()) is_kept_[static_cast<std::size_t>(source)] = 1;
        through_ = AlignedArray<T>(layer.n_varying() * stride);
        if (collapse && !collapse->by_row) find_collapsed(*collapse, output.n_sources());
    }

    bool applies() const { return !is_kept_.empty(); }
    // Whether forward() at output weights of zero makes all that the passes of a collapsed output layer need: the nodes
    // that it keeps are those whose output weights are integrated out, and the first of the layer.
    bool serves_collapsed() const { return n_collapsed_ > 0; }

    // From the activations below to f, in place of two layers of TilePass::forward(), with what the reverse pass needs.
    void forward(TileWorkspace<T>& work) { forward_from<max_below>(work); }

    // Number of values of a tile that save() writes.
    std::int64_t saved_size(const TileWorkspace<T>& work) const {
        std::int64_t size = through_.size() + work.stride;
        for_each_saved(work, [&](const TileValues<T>&, std::int64_t count) { size += count; });
        return size;
    }
    // After forward(), what the reverse pass of the tile needs, and f; then again from there.
    void save(const TileWorkspace<T>& work, T* to) const {
        to = std::copy_n(through_.data(), through_.size(), to);
        to = std::copy_n(work.layers.back().value.data(), work.stride, to);
        for_each_saved(
            work, [&](const TileValues<T>& value, std::int64_t size) { to = std::copy_n(value.data(), size, to); });
    }
    void restore(TileWorkspace<T>& work, const T* from) {
        const auto take = [&](auto& value, std::int64_t size) {
            std::copy_n(from, size, value.data());
            from += size;
        };
        take(through_, through_.size());
        take(work.layers.back().value, work.stride);
        for_each_saved(work, take);
    }

    // Adds to f, made with zeros for the collapsed output weights, what their means contribute.
    void add_collapsed(TileWorkspace<T>& work) const {
        LayerWork<T>& output = work.layers.back();
        const T* const value = (work.layers.end() - 2)->value.data();
        const V bias = broadcast<V>(bias_is_collapsed_ ? *output.biases.data() : T(0));
        for (std::int64_t row = 0; row < work.n_vectors * lanes_v<V>; row += lanes_v<V>) {
            V f = load<V>(output.value.data() + row) + bias;
            for (std::int64_t node = 0; node < n_collapsed_; ++node)
                f = fma(broadcast<V>(output.weights.data()[node]), load<V>(value + node * work.stride + row), f);
            store<V>(output.value.data() + row, f);
        }
    }

    // Once the output layer's gradient is there: dl/d(pre-activation) of the nodes whose gradient is wanted.
    void reverse_kept(TileWorkspace<T>& work) const {
        T* const value = (work.layers.end() - 2)->value.data();
        const T *const weights = work.layers.back().weights.data(), *const slope = work.layers.back().value.data();
        for (std::size_t node = 0; node < is_kept_.size(); ++node)
            if (is_kept_[node])
                times_derivative(work, value + static_cast<std::int64_t>(node) * work.stride,
                                 [&](std::int64_t row) { return broadcast<V>(weights[node]) * load<V>(slope + row); });
    }

    // Then, once that gradient is there too: dl/d(pre-activation) of the nodes below.
    void reverse_below(TileWorkspace<T>& work) const { reverse_from(work, 0); }
    // The same with the collapsed nodes, which `through` has not, at their dl/d(pre-activation).
    void reverse_below_collapsed(TileWorkspace<T>& work) const { reverse_from(work, n_collapsed_); }

private:
    void find_collapsed(const CollapsePlan& collapse, std::int64_t n_sources) {
        const std::vector<std::int32_t>& read = collapse.sources;
        bias_is_collapsed_ = std::find(read.begin(), read.end(), n_sources) != read.end();
        const auto n_nodes = std::ssize(is_kept_);
        const auto n_kept = std::count(is_kept_.begin(), is_kept_.end(), 1);
        const auto n_read_below = [&](std::int64_t end) {
            return std::count_if(read.begin(), read.end(), [=](std::int32_t source) { return source < end; });
        };
        const bool are_first = std::find(is_kept_.begin(), is_kept_.end(), 0) == is_kept_.begin() + n_kept;
        if (are_first && n_read_below(n_kept) == n_kept && n_read_below(n_nodes) == n_kept) n_collapsed_ = n_kept;
    }

    // The activations of the layers below, and of the collapsed nodes.
    template <class Work, class Each>
    void for_each_saved(Work& work, const Each& each) const {
        for (std::size_t l = 0; l + 2 < work.layers.size(); ++l)
            each(work.layers[l].value, work.layers[l].value.size());
        each((work.layers.end() - 2)->value, n_collapsed_ * work.stride);
    }

    // dl/d(pre-activation) of the nodes below, from `through` and the first n_nodes of the layer.
    void reverse_from(TileWorkspace<T>& work, std::int64_t n_nodes) const {
        const LayerWork<T>& layer = *(work.layers.end() - 2);
        T* const value = (work.layers.end() - 3)->value.data();
        const T* const slope = work.layers.back().value.data();
        const std::int64_t n_below = through_.size() / work.stride;
        for (std::int64_t s = 0; s < n_below; ++s)
            times_derivative(work, value + s * work.stride, [&](std::int64_t row) {
                V sum = load<V>(through_.data() + s * work.stride + row) * load<V>(slope + row);
                for (std::int64_t node = 0; node < n_nodes; ++node)
                    sum = fma(broadcast<V>(layer.weights.data()[node * n_below + s]),
                              load<V>(layer.value.data() + node * work.stride + row), sum);
                return sum;
            });
    }

    // dl/d(pre-activation) of a node in place of its activation, `slope` being dl/d(activation).
    template <class Slope>
    static void times_derivative(const TileWorkspace<T>& work, T* value, const Slope& slope) {
        for (std::int64_t row = 0; row < work.n_vectors * lanes_v<V>; row += lanes_v<V>)
            store<V>(value + row, slope(row) * Tanh::derivative(load<V>(value + row)));
    }

    template <int S>
    void forward_from(TileWorkspace<T>& work) {
        if constexpr (S > 1)
            if (through_.size() < S * work.stride) return forward_from<S - 1>(work);
        constexpr std::int64_t lanes = lanes_v<V>;
        const bool half = work.ends_in_half && is_kept_.size() % 2 == 0;
        const std::int64_t whole = work.n_vectors - half;
        std::int64_t k = 0;
        for (; k + 3 <= whole; k += 3) forward_rows<S, 3, 1>(work, k * lanes);
        for (; k < whole; ++k) forward_rows<S, 1, 1>(work, k * lanes);
        if constexpr (has_halves<T>)
            if (half) forward_rows<S, 1, 2>(work, k * lanes);
    }

    // A vector holds `Nodes` nodes side by side: 1, or 2 with half a vector of rows each.
    template <int Nodes>
    using Rows = std::conditional_t<Nodes == 1, V, HalfVec<T>>;
    // value[0] for the first of them, value[step] for the second.
    template <int Nodes>
    static PATRAC_FN V spread(const T* value, std::int64_t step) {
        if constexpr (Nodes == 1)
            return broadcast<V>(*value);
        else
            return concatenated<V>(broadcast<Rows<2>>(*value), broadcast<Rows<2>>(value[step]));
    }
    // The same with rows from each.
    template <int Nodes>
    static PATRAC_FN V load_rows(const T* first, const T* second) {
        if constexpr (Nodes == 1)
            return load<V>(first);
        else
            return concatenated<V>(load<Rows<2>>(first), load<Rows<2>>(second));
    }
    template <int Nodes>
    static PATRAC_FN void store_rows(T* first, T* second, V values) {
        if constexpr (Nodes == 1) {
            store<V>(first, values);
        } else {
            store<Rows<2>>(first, half_of<0>(values));
            store<Rows<2>>(second, half_of<1>(values));
        }
    }
    template <int Nodes>
    static PATRAC_FN Rows<Nodes> over_nodes(V sum) {
        if constexpr (Nodes == 1)
            return sum;
        else
            return folded(sum);
    }

    // S nodes below, M vectors of rows.
    template <int S, int M, int Nodes>
    [[gnu::noinline]] void forward_rows(TileWorkspace<T>& work, std::int64_t row) {
        using R = Rows<Nodes>;
        constexpr int lanes = lanes_v<R>;
        LayerWork<T>&layer = *(work.layers.end() - 2), &output = work.layers.back();
        const T* const below = (work.layers.end() - 3)->value.data() + row;
        V x[S][M], sum[S][M] = {}, f[M] = {};
        unrolled<M>([&](int k) __attribute__((always_inline)) {
            unrolled<S>([&](int s) __attribute__((always_inline)) {
                const T* const source = below + s * work.stride + k * lanes;
                x[s][k] = load_rows<Nodes>(source, source);
            });
        });
        const T *const weight = layer.weights.data(), *const bias = layer.biases.data(),
                       *const out = output.weights.data();
        const T* const* const offset = layer.start.data();
        const unsigned char* const is_kept = is_kept_.data();
        // The pre-activation of a node.
        const auto before = [&](std::size_t node, V(&z)[M]) __attribute__((always_inline)) {
            const T* const of_node = weight + node * S;
            const V start = spread<Nodes>(bias + node, 1);
            unrolled<M>([&](int k) __attribute__((always_inline)) {
                const std::int64_t at = row + k * lanes;
                z[k] = start + load_rows<Nodes>(offset[node] + at, offset[node + Nodes - 1] + at);
            });
            unrolled<S>([&](int s) __attribute__((always_inline)) {
                const V w = spread<Nodes>(of_node + s, S);
                unrolled<M>([&](int k) __attribute__((always_inline)) { z[k] = fma(w, x[s][k], z[k]); });
            });
        };
        // What its activation goes into, forward and backward.
        const auto after = [&](std::size_t node, const V(&a)[M]) __attribute__((always_inline)) {
            const T* const of_node = weight + node * S;
            const V w_out = spread<Nodes>(out + node, 1);
            V delta[M];
            unrolled<M>([&](int k) __attribute__((always_inline)) {
                f[k] = fma(w_out, a[k], f[k]);
                delta[k] = w_out * Tanh::derivative(a[k]);
            });
            if (is_kept[node] | is_kept[node + Nodes - 1]) {
                T* const value = layer.value.data() + static_cast<std::int64_t>(node) * work.stride + row;
                unrolled<M>([&](int k) __attribute__((always_inline)) {
                    store_rows<Nodes>(value + k * lanes, value + k * lanes + work.stride, a[k]);
                });
            }
            unrolled<S>([&](int s) __attribute__((always_inline)) {
                const V w = spread<Nodes>(of_node + s, S);
                unrolled<M>([&](int k) __attribute__((always_inline)) { sum[s][k] = fma(w, delta[k], sum[s][k]); });
            });
        };
        // tanh of one node is one long chain of dependent operations. The products of its two neighbours, which are
        // independent of it, follow closely enough for the processor to overlap them.
        V z[M], a[M], next[M];
        const auto activate = [&](V(&activation)[M]) __attribute__((always_inline)) {
            unrolled<M>([&](int k) __attribute__((always_inline)) { activation[k] = Tanh::value(z[k]); });
        };
        const std::size_t n_nodes = is_kept_.size();
        before(0, z);
        activate(a);
        if (n_nodes > Nodes) before(Nodes, z);
        for (std::size_t node = Nodes; node < n_nodes; node += Nodes) {
            activate(next);
            if (node + Nodes < n_nodes) before(node + Nodes, z);
            after(node - Nodes, a);
            unrolled<M>([&](int k) __attribute__((always_inline)) { a[k] = next[k]; });
        }
        after(n_nodes - Nodes, a);
        unrolled<M>([&](int k) __attribute__((always_inline)) {
            const std::int64_t at = row + k * lanes;
            const R start = broadcast<R>(*output.biases.data()) + load<R>(output.start.front() + at);
            store<R>(output.value.data() + at, start + over_nodes<Nodes>(f[k]));
            unrolled<S>([&](int s) __attribute__((always_inline)) {
                store<R>(through_.data() + s * work.stride + at, over_nodes<Nodes>(sum[s][k]));
            });
        });
    }

    std::vector<unsigned char> is_kept_;  // (nodes,): whether a dense gradient reads it; empty: not applicable
    AlignedArray<T> through_;             // (nodes below, stride): d f/d(activation)
    std::int64_t n_collapsed_ = 0;        // see serves_collapsed()
    bool bias_is_collapsed_ = false;
};

}  // namespace patrac::PATRAC_LEVEL
