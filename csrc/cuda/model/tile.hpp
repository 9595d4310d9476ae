// Forward, likelihood and reverse of a tile of rows by one block (twin of cpu/tiles/tile_pass.hpp and
// cpu/tiles/likelihood.hpp).
#pragma once

#include "cuda/block/contraction.hpp"
#include "cuda/model/device_plan.hpp"
#include "shared/activation.hpp"
#include "shared/likelihood.hpp"

namespace patrac::PATRAC_LEVEL {

// The activation of the plan: tanh compiled in, any other looked up for each four values.
struct AnyActivation {
    Activation activation;

    template <class T>
    PATRAC_DEVICE void values(Four<T>& z) const {
        visit(activation, [&](auto zeta) {
#pragma unroll
            for (int r = 0; r < 4; ++r) z.x[r] = zeta.value(z.x[r]);
        });
    }
    template <class T>
    PATRAC_DEVICE void times_derivatives(const Four<T>& of, Four<T>& sum) const {
        visit(activation, [&](auto zeta) {
#pragma unroll
            for (int r = 0; r < 4; ++r) sum.x[r] *= zeta.derivative(of.x[r]);
        });
    }
};
struct TanhActivation {
    PATRAC_DEVICE explicit TanhActivation(Activation) {}

    template <class T>
    PATRAC_DEVICE void values(Four<T>& z) const {
#pragma unroll
        for (int r = 0; r < 4; ++r) z.x[r] = Tanh::value(z.x[r]);
    }
    template <class T>
    PATRAC_DEVICE void times_derivatives(const Four<T>& of, Four<T>& sum) const {
#pragma unroll
        for (int r = 0; r < 4; ++r) sum.x[r] *= Tanh::derivative(of.x[r]);
    }
};

// One block's view of the plan, its data and its workspace. Every thread of the block calls every function; each but
// likelihood() and find_own_outputs() ends with all of its results visible to the block.
template <class T, class Zeta>
struct TileBlock {
    ThreadBlock block;
    const DevicePlan<T>& plan;
    const T *tiles, *inputs, *parameters;  // of the block's data set
    T* packed;                             // (n_packed,) parameters
    T* value;       // (n_value_rows, stride): activations, over which the reverse pass writes dl/d(pre-activation)
    T* pre;         // the same before the activation, where plan.keeps_pre
    const T* ones;  // (stride,)
    // (n_tiles, nodes, stride) of the first layer, where its sums over the inputs are found elsewhere, else null: it is
    // read as those sums, and the reverse pass leaves dl/d(pre-activation) there instead of the layer's gradient.
    T* first_layer = nullptr;
    // (rows_of_reverse(), stride) where `alternates`: derivatives of every second layer, so that the activations below
    // a layer stay until its gradient is found and both passes over them need one barrier.
    T* spare = nullptr;
    bool alternates = false;

    // This thread's part of the sum of l, without its constant, over tiles first, first + step ..; the gradient (K,) of
    // the block is overwritten unless null.
    PATRAC_DEVICE double evaluate(int first, int step, T* gradient) const {
        double log_likelihood = 0.0;
#pragma unroll 1
        for (int t = first; t < plan.n_tiles; t += step) {
            const bool is_narrow = has_narrow_output();
            forward(t, 0, is_narrow ? plan.n_layers - 1 : plan.n_layers);
            if (is_narrow) find_own_outputs(t);
            log_likelihood += likelihood(t);
            block.sync();
            if (gradient) reverse(t, t == first, gradient, plan.n_layers);
        }
        return log_likelihood;
    }

    PATRAC_DEVICE T* value_row(int layer, int row) const {
        return value + (plan.layers[layer].value + row) * plan.stride;
    }
    PATRAC_DEVICE const T* tile(int t) const { return tiles + static_cast<std::int64_t>(t) * plan.tile_size; }

    // Layers first .. end - 1.
    PATRAC_DEVICE void forward(int t, int first, int end) const {
#pragma unroll 1
        for (int l = first; l < end; ++l) {
            const FlatLayer& layer = plan.layers[l];
            const bool is_output = l + 1 == plan.n_layers;
            const T* const given = l == 0 ? given_rows(t) : nullptr;
            contract<false>(
                block,
                DeviceContraction<T>{layer.n_rows,
                                     {value_row(l > 0 ? l - 1 : 0, 0), layer.n_varying, plan.stride},
                                     packed + layer.weights,
                                     layer.pitch,
                                     plan.padded_rows(t)},
                DeviceSources<T>{constants(l, t), given ? 0 : layer.n_constant, plan.stride}, layer.constant_column,
                ForwardEnds{Zeta{plan.activation}, is_output, packed + layer.biases, tile(t) + layer.offsets,
                            plan.indices + layer.offset_of_row, value_row(l, 0), pre_rows(l), given, plan.stride});
            block.sync();
        }
    }

    // Turns f of the tile into dl/df; returns this thread's part of l.
    PATRAC_DEVICE double likelihood(int t) const {
        return visit(plan.likelihood, [&](auto kind) { return likelihood_of<decltype(kind)>(t); });
    }

    // This thread's part of the weighted sum of squared residuals of output c of the tile; f stays as it is.
    PATRAC_DEVICE double squares(int t, int c) const {
        const T* const f = value_row(plan.n_layers - 1, c);
        const T* const target = tile(t) + plan.targets + c * plan.stride;
        const T* const weight = tile(t) + plan.row_weights;
        double sum = 0.0;
        for (int row = block.thread; row < plan.padded_rows(t); row += block.threads) {
            const double residual = static_cast<double>(target[row]) - static_cast<double>(f[row]);
            sum = fma(static_cast<double>(weight[row]) * residual, residual, sum);
        }
        return sum;
    }

    // From layer top - 1 down: the gradient of a layer, then dl/d(pre-activation) below. The tile starts the sums or
    // adds to them.
    PATRAC_DEVICE void reverse(int t, bool starts, T* gradient, int top) const {
        const int rows = plan.padded_rows(t);
        T* delta = value_row(top - 1, 0);  // dl/d(pre-activation) of layer l
#pragma unroll 1
        for (int l = top; l-- > 0;) {
            const FlatLayer& layer = plan.layers[l];
            if (l == 0 && first_layer) {
                T* const kept = given_rows(t);
                for (int i = block.thread; i < layer.n_rows * rows; i += block.threads) {
                    const int at = i / rows * plan.stride + i % rows;
                    kept[at] = delta[at];
                }
                block.sync();
                break;
            }
#pragma unroll 1
            for (int b = layer.first_gradient; b < layer.first_gradient + layer.n_gradients; ++b) {
                const FlatDenseGradient& entries = plan.gradients[b];
                const int* const theta = plan.indices + entries.theta;
                const auto add_products_with = [&](const auto& source_of) {
                    outer<T>(
                        block, entries.n_rows, entries.n_sources, rows,
                        [&](int i) { return delta + plan.indices[entries.rows + i] * plan.stride; },
                        [&](int j) { return source_of(plan.indices[entries.sources + j]); },
                        [&](int i, int j, T sum) {
                            const int k = theta[i * entries.n_sources + j];
                            if (k >= 0) gradient[k] = starts ? sum : gradient[k] + sum;
                        });
                };
                // Compiled apart, so that reads of the workspace are addressed as such.
                if (layer.n_constant == 0)
                    add_products_with([&](int s) { return workspace_source(l, s); });
                else
                    add_products_with([&](int s) { return source(l, t, s); });
            }
            const bool is_last = layer.n_varying == 0;
            if (is_last || !alternates) block.sync();  // the activations below are read no more
            if (is_last) break;
            // In place of the activations; or apart, and then where this layer's were, which nothing reads any more.
            T* below = value_row(l - 1, 0);
            if (alternates) below = delta == spare ? value_row(l, 0) : spare;
            const DeviceContraction<T> transposed{
                layer.n_varying, {delta, layer.n_rows, plan.stride}, packed + layer.weights, layer.pitch, rows};
            contract<true>(block, transposed, DeviceSources<T>{}, 0, reverse_ends(l, below));
            block.sync();  // the derivatives below are there
            delta = below;
        }
    }

    // Turns the activations below layer l into dl/d(pre-activation), by other weights than the layer's.
    PATRAC_DEVICE void reverse_from(int l, const DeviceContraction<T>& sources, const DeviceSources<T>& further,
                                    int further_column) const {
        contract<false>(block, sources, further, further_column, reverse_ends(l, value_row(l - 1, 0)));
        block.sync();
    }

    // The values of a source of layer l.
    PATRAC_DEVICE const T* source(int l, int t, int s) const {
        const FlatLayer& layer = plan.layers[l];
        if (s < layer.n_varying) return value_row(l - 1, s);
        if (s < layer.n_varying + layer.n_constant) return constants(l, t) + (s - layer.n_varying) * plan.stride;
        return ones;
    }
    // The same in a layer without constant sources.
    PATRAC_DEVICE const T* workspace_source(int l, int s) const {
        return s < plan.layers[l].n_varying ? value_row(l - 1, s) : ones;
    }

private:
    // Whether each thread finds the outputs of its own rows, which saves a barrier: with few outputs, shared among
    // fours of rows, most threads would have none.
    PATRAC_DEVICE bool has_narrow_output() const { return plan.n_layers > 1 && plan.n_outputs <= 2; }

    // The outputs f of the rows whose likelihood is this thread's: the sums of forward(), in its order.
    PATRAC_DEVICE void find_own_outputs(int t) const {
        const int l = plan.n_layers - 1;
        const FlatLayer& layer = plan.layers[l];
        const T *const below = value_row(l - 1, 0), *const further = constants(l, t);
        for (int row = block.thread; row < plan.padded_rows(t); row += block.threads)
#pragma unroll 1
            for (int o = 0; o < layer.n_rows; ++o) {
                const T* const weights = packed + layer.weights + o * layer.pitch;
                const int offset = plan.indices[layer.offset_of_row + o];
                T sum = offset >= 0 ? tile(t)[layer.offsets + offset * plan.stride + row] : T(0);
                sum += packed[layer.biases + o];
#pragma unroll 8
                for (int s = 0; s < layer.n_varying; ++s) sum = fma(weights[s], below[s * plan.stride + row], sum);
                for (int s = 0; s < layer.n_constant; ++s)
                    sum = fma(weights[layer.constant_column + s], further[s * plan.stride + row], sum);
                value_row(l, o)[row] = sum;
            }
    }

    template <class Terms>
    PATRAC_DEVICE double likelihood_of(int t) const {
        T* const f = value_row(plan.n_layers - 1, 0);
        const T* const target = tile(t) + plan.targets;
        const T* const weight = tile(t) + plan.row_weights;
        double sum = 0.0;
        for (int row = block.thread; row < plan.padded_rows(t); row += block.threads) {
            if constexpr (targets_of<Terms> == TargetLayout::label) {
                sum += static_cast<double>(
                    Terms::template of_row<T>(f + row, plan.stride, plan.n_outputs, target[row], weight[row]));
            } else {
                const int n_terms = terms_of_row<Terms>(plan.n_outputs);
                for (int c = 0; c < n_terms; ++c) {
                    const int at = c * plan.stride + row;
                    const typename Terms::template Output<T> output(parameters, plan.n_outputs, c);
                    sum += static_cast<double>(
                        of_target<Terms>(output, f + at, target + at, n_terms * plan.stride, weight[row]));
                }
            }
        }
        return sum;
    }

    struct ForwardEnds {
        Zeta zeta;
        bool is_output;
        const T *bias, *offsets;  // of the tile
        const int* offset_of_row;
        T *value, *pre;  // pre: null where it is not needed
        const T* given;  // sums over the sources that are not among them here, or null
        int stride;

        PATRAC_DEVICE Four<T> start(int o, int row) const {
            const int offset = offset_of_row[o];
            Four<T> sum = {};
            if (offset >= 0) sum = load_four(offsets + offset * stride + row);
#pragma unroll
            for (int r = 0; r < 4; ++r) sum.x[r] += bias[o];
            if (given) {
                const Four<T> more = load_four(given + o * stride + row);
#pragma unroll
                for (int r = 0; r < 4; ++r) sum.x[r] += more.x[r];
            }
            return sum;
        }
        PATRAC_DEVICE void finish(int o, int row, Four<T> z) const {
            if (!is_output) {
                if (pre) store_four(pre + o * stride + row, z);
                zeta.values(z);
            }
            store_four(value + o * stride + row, z);
        }
    };

    struct ReverseEnds {
        Zeta zeta;
        T* value;
        const T* of;  // what the derivative is a function of
        int stride;

        PATRAC_DEVICE Four<T> start(int, int) const { return {}; }
        PATRAC_DEVICE void finish(int node, int row, Four<T> sum) const {
            zeta.times_derivatives(load_four(of + node * stride + row), sum);
            store_four(value + node * stride + row, sum);
        }
    };

    // The constant sources of layer l, see PackedData::constants().
    PATRAC_DEVICE const T* constants(int l, int t) const {
        if (l > 0) return tile(t) + plan.layers[l].constants;
        return inputs + static_cast<std::int64_t>(t) * plan.layers[0].n_constant * plan.stride;
    }
    PATRAC_DEVICE T* given_rows(int t) const {
        return first_layer ? first_layer + static_cast<std::int64_t>(t) * plan.layers[0].n_rows * plan.stride : nullptr;
    }
    PATRAC_DEVICE T* pre_rows(int l) const {
        return plan.keeps_pre ? pre + plan.layers[l].value * plan.stride : nullptr;
    }

    PATRAC_DEVICE ReverseEnds reverse_ends(int l, T* below) const {
        return {Zeta{plan.activation}, below, plan.keeps_pre ? pre_rows(l - 1) : value_row(l - 1, 0), plan.stride};
    }
};

}  // namespace patrac::PATRAC_LEVEL
