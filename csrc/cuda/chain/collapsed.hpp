// A block's target: the tiles as they are, or with the output weights integrated out (twin of cpu/chain/collapsed.hpp).
//
// A target has
//   evaluate(gradient)  this thread's part of l at the parameters in `packed`, without its constant
//   marginal()          the log density's terms beside l, the same in every thread
//   accepted()          the point of the last evaluation is now the chain's
//   complete(..)        the rest of a kept draw
#pragma once

#include <type_traits>

#include "cuda/block/cholesky.hpp"
#include "cuda/block/noise.hpp"
#include "cuda/chain/noise_variance.hpp"
#include "cuda/model/tile.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T, class Zeta>
struct TileTarget {
    TileBlock<T, Zeta> tile;

    PATRAC_DEVICE double evaluate(T* gradient) const { return tile.evaluate(0, 1, gradient); }
    PATRAC_DEVICE double marginal() const { return 0.0; }
    PATRAC_DEVICE void accepted() const {}
    PATRAC_DEVICE void complete(PhiloxKey, std::uint64_t, const T*, T*, double&, double&) const {}
};

template <class T, class Zeta>
struct CollapsedTarget {
    TileBlock<T, Zeta> tile;
    DeviceCollapse collapse;  // of the block's data set
    const CollapseLayout& layout;
    T* workspace;
    double* sums;  // reduction_values
    double* kept;  // this chain's
    const ChainVariance<T>& noise;
    double marginal_ = 0.0;

    // With m the conditional mean of the output weights the density is l(theta_h, m) - |alpha|^2 / 2 - log|M| / 2; see
    // CollapsedTarget of the CPU.
    PATRAC_DEVICE double evaluate(T* gradient) {
        const int last = tile.plan.n_layers - 1;
        set_output_weights([](const FlatCollapseGroup&, int, int) { return 0.0; });
        for (int i = tile.block.thread; i < (n_features() + n_outputs()) * n_features(); i += tile.block.threads)
            moments()[i] = 0.0;
        tile.block.sync();
#pragma unroll 1
        for (int t = 0; t < tile.plan.n_tiles; ++t) {
            tile.forward(t, 0, last + 1);
            add_moments(t);
        }
        condition();
        if (gradient) find_reverse_weights();
        const bool one_tile = tile.plan.n_tiles == 1;  // its hidden activations and features are there
        double log_likelihood = 0.0;
#pragma unroll 1
        for (int t = 0; t < tile.plan.n_tiles; ++t) {
            tile.forward(t, one_tile ? last : 0, last + 1);
            log_likelihood += tile.likelihood(t);
            if (gradient && !one_tile) weight_features(t);
            tile.block.sync();
            if (gradient) reverse(t, gradient);
        }
        return log_likelihood;
    }

    PATRAC_DEVICE double marginal() const { return marginal_; }

    PATRAC_DEVICE void accepted() const {
        for (int i = tile.block.thread; i < collapse.factor_size + collapse.alpha_size; i += tile.block.threads)
            kept[i] = factors()[i];
    }

    // Draws the output weights of the chain's point: S^(1/2) (alpha + d), d = (L^-1)' D^(-1/2) z. `square` and `change`
    // are this thread's parts of theta' C^-1 theta and of l beyond that at the conditional mean.
    PATRAC_DEVICE void complete(PhiloxKey key, std::uint64_t step, const T* variance, T* theta, double& square,
                                double& change) const {
        const double* const alpha = kept + collapse.factor_size;
        double* const z = doubles(layout.solved);
        constexpr int each = normals_per_block<T>;
        for (int b = tile.block.thread; b * each < collapse.alpha_size; b += tile.block.threads) {
            T w[each];
            block_normals(key, static_cast<std::uint64_t>(b), Purpose::output_weights, step, w);
            for (int i = 0; i < each && b * each + i < collapse.alpha_size; ++i)
                z[b * each + i] = static_cast<double>(w[i]);
        }
        tile.block.sync();
        for_each_weight([&](const FlatCollapseGroup& group, int output, int i) {
            const double* const a = kept + group.factor;
            const double* const own = z + group.alpha + output * group.size;
            double d = 0.0;
            for (int l = i; l < group.size; ++l)
                d = fma(inverse_factor(a, group.size, l, i), own[l] / sqrt(a[l * group.size + l]), d);
            const double mean = alpha[group.alpha + output * group.size + i];
            change += d * mean - 0.5 * (own[i] * own[i] - d * d);
            const int k = collapse.indices[group.theta + output * group.size + i];
            theta[k] = static_cast<T>(deviation(group, i) * (mean + d));
            const double x = static_cast<double>(theta[k]);
            square = fma(x * x, 1.0 / static_cast<double>(variance[k]), square);
        });
    }

private:
    PATRAC_DEVICE int n_features() const { return collapse.n_features; }
    PATRAC_DEVICE int n_outputs() const { return tile.plan.n_outputs; }
    PATRAC_DEVICE double* doubles(int at) const { return reinterpret_cast<double*>(workspace + at); }
    PATRAC_DEVICE double* moments() const { return doubles(layout.moments); }
    PATRAC_DEVICE double* factors() const { return doubles(layout.factor); }
    PATRAC_DEVICE double* alphas() const { return factors() + collapse.factor_size; }
    PATRAC_DEVICE T* weighted_row(int f) const { return workspace + layout.weighted + f * tile.plan.stride; }
    PATRAC_DEVICE int feature(const FlatCollapseGroup& group, int i) const {
        return collapse.indices[group.features + i];
    }
    PATRAC_DEVICE double deviation(const FlatCollapseGroup& group, int i) const {
        return collapse.deviation[group.deviation + i];
    }

    PATRAC_DEVICE double precision(const FlatCollapseGroup& group) const {
        return noise.count > 0 ? 1.0 / noise.of_output(group.output) : group.precision;
    }

    // Calls f(group, output of the group, i) for every output weight, a thread's share of them.
    template <class F>
    PATRAC_DEVICE void for_each_weight(const F& f) const {
#pragma unroll 1
        for (int g = 0; g < collapse.n_groups; ++g) {
            const FlatCollapseGroup& group = collapse.groups[g];
#pragma unroll 1
            for (int item = tile.block.thread; item < group.n_outputs * group.size; item += tile.block.threads)
                f(group, item / group.size, item % group.size);
        }
    }

    template <class F>
    PATRAC_DEVICE void set_output_weights(const F& value) const {
        for_each_weight([&](const FlatCollapseGroup& group, int output, int i) {
            const int k = collapse.indices[group.theta + output * group.size + i];
            tile.packed[tile.plan.position[k]] = static_cast<T>(value(group, output, i));
        });
    }

    PATRAC_DEVICE const T* feature_row(int t, int f) const {
        return tile.source(tile.plan.n_layers - 1, t, collapse.sources[f]);
    }

    PATRAC_DEVICE void weight_features(int t) const {
        const T* const weight = tile.tile(t) + tile.plan.row_weights;
        const int rows = tile.plan.padded_rows(t);
        for (int item = tile.block.thread; item < n_features() * rows; item += tile.block.threads) {
            const int f = item / rows, row = item % rows;
            weighted_row(f)[row] = weight[row] * feature_row(t, f)[row];
        }
    }

    // The outputs of the tile, o, become W (y - o).
    PATRAC_DEVICE void add_moments(int t) const {
        const int last = tile.plan.n_layers - 1, rows = tile.plan.padded_rows(t), P = n_features();
        const T* const target = tile.tile(t) + tile.plan.targets;
        const T* const weight = tile.tile(t) + tile.plan.row_weights;
        for (int item = tile.block.thread; item < n_outputs() * rows; item += tile.block.threads) {
            const int c = item / rows, row = item % rows;
            T& f = tile.value_row(last, c)[row];
            f = weight[row] * (target[c * tile.plan.stride + row] - f);
        }
        weight_features(t);
        tile.block.sync();
        double* const gram = moments();
        double* const cross = gram + P * P;
        const auto features = [&](int i) { return feature_row(t, i); };
        const auto residuals = [&](int c) { return tile.value_row(last, c); };
        const auto add_to_gram = [&](int i, int j, double sum) { gram[i * P + j] += sum; };
        const auto add_to_cross = [&](int c, int j, double sum) { cross[c * P + j] += sum; };
        if constexpr (std::is_same_v<T, float>) {
            if (needs_wide_moments()) {  // the same in every thread
                wide_outer(tile.block, P, P, rows, weight, features, features, add_to_gram);
                wide_outer(tile.block, n_outputs(), P, rows, tile.ones, residuals, features, add_to_cross);
                tile.block.sync();
                return;
            }
        }
        outer<T>(tile.block, P, P, rows, features, [&](int j) { return weighted_row(j); }, add_to_gram);
        outer<T>(tile.block, n_outputs(), P, rows, residuals, features, add_to_cross);
        tile.block.sync();
    }

    // See CollapsedGroup::narrow_ratio.
    PATRAC_DEVICE bool needs_wide_moments() const {
        bool needs = false;
        for (int g = 0; g < collapse.n_groups; ++g)
            needs |= precision(collapse.groups[g]) > collapse.groups[g].narrow_precision;
        return needs;
    }

    // The conditional law of the output weights, its mean into `packed`, and the marginal part of the density.
    PATRAC_DEVICE void condition() {
        const int P = n_features();
        const double* const gram = moments();
        const double* const cross = gram + P * P;
        double* const solved = doubles(layout.solved);
        double part[1] = {0.0};
#pragma unroll 1
        for (int g = 0; g < collapse.n_groups; ++g) {
            const FlatCollapseGroup& group = collapse.groups[g];
            const int n = group.size;
            const double precision = this->precision(group);
            double* const a = factors() + group.factor;
            for (int item = tile.block.thread; item < n * n; item += tile.block.threads) {
                const int i = item / n, j = item % n;
                const double entry = gram[feature(group, i) * P + feature(group, j)];
                a[item] = (i == j) + precision * deviation(group, i) * deviation(group, j) * entry;
            }
            factorise(tile.block, a, n);
            for (int item = tile.block.thread; item < group.n_outputs * n; item += tile.block.threads) {
                const int output = item / n, i = item % n, c = collapse.indices[group.outputs + output];
                alphas()[group.alpha + item] = precision * deviation(group, i) * cross[c * P + feature(group, i)];
            }
            tile.block.sync();
            for (int i = tile.block.thread; i < n; i += tile.block.threads)
                part[0] -= 0.5 * group.n_outputs * log(a[i * n + i]);
        }
        for_each_weight([&](const FlatCollapseGroup& group, int output, int i) {
            const int row = group.alpha + output * group.size;
            solved[row + i] = solved_forward(factors() + group.factor, group.size, alphas() + row, i);
        });
        tile.block.sync();
        for_each_weight([&](const FlatCollapseGroup& group, int output, int i) {
            const int row = group.alpha + output * group.size;
            const double alpha = solved_backward(factors() + group.factor, group.size, solved + row, i);
            alphas()[row + i] = alpha;
            part[0] -= 0.5 * alpha * alpha;
        });
        set_output_weights([&](const FlatCollapseGroup& group, int output, int i) {
            return deviation(group, i) * alphas()[group.alpha + output * group.size + i];  // this thread's own
        });
        sum_over_block(tile.block, part, sums);
        marginal_ = part[0];
        tile.block.sync();
    }

    // Weights through which the reverse pass reaches the varying sources of the output layer: the derivatives of the
    // outputs, and the weighted features for the term of log|M|.
    PATRAC_DEVICE void find_reverse_weights() const {
        const FlatLayer& output = tile.plan.layers[tile.plan.n_layers - 1];
        T* const weights = workspace + layout.reverse_weights;
        for (int item = tile.block.thread; item < output.n_varying * layout.pitch; item += tile.block.threads) {
            const int j = item / layout.pitch, column = item % layout.pitch;
            weights[item] = column < n_outputs() ? tile.packed[output.weights + column * output.pitch + j] : T(0);
        }
#pragma unroll 1
        for (int g = 0; g < collapse.n_groups; ++g) {
            tile.block.sync();  // groups may share features
            const FlatCollapseGroup& group = collapse.groups[g];
            const int n = group.size;
            for (int item = tile.block.thread; item < n * n; item += tile.block.threads) {
                const int i = item / n, k = item % n, source = collapse.sources[feature(group, i)];
                if (source >= output.n_varying) continue;
                const double entry = inverse_entry(factors() + group.factor, n, i, k);
                weights[source * layout.pitch + layout.feature_column + feature(group, k)] -= static_cast<T>(
                    group.n_outputs * precision(group) * deviation(group, i) * deviation(group, k) * entry);
            }
        }
        tile.block.sync();
    }

    PATRAC_DEVICE void reverse(int t, T* gradient) const {
        const int last = tile.plan.n_layers - 1;
        tile.reverse_from(last,
                          DeviceContraction<T>{tile.plan.layers[last].n_varying,
                                               {tile.value_row(last, 0), n_outputs(), tile.plan.stride},
                                               workspace + layout.reverse_weights,
                                               layout.pitch,
                                               tile.plan.padded_rows(t)},
                          DeviceSources<T>{weighted_row(0), n_features(), tile.plan.stride}, layout.feature_column);
        tile.reverse(t, t == 0, gradient, last);
    }
};

}  // namespace patrac::PATRAC_LEVEL
