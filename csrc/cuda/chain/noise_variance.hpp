// The noise variances of a chain, where they are drawn (twin of draw_variance() in cpu/chain/chain.hpp).
#pragma once

#include "cuda/block/noise.hpp"
#include "shared/noise_variance.hpp"

namespace patrac::PATRAC_LEVEL {

// The noise variances of all chains in the device's memory, see SampledVariance. Where they are fixed, there are none.
template <class T>
struct DeviceVariance {
    int count;  // q, 0 where they are fixed
    int n_outputs;
    std::int64_t every;
    double shape;
    const double* rate;   // (data sets, q)
    const double* terms;  // (data sets,): Gaussian terms of each variance
    double* values;       // (chains, q)
    double* previous;     // (chains, q): those before the last draw
    double* squares;      // (chains, q): sums of squared residuals
    T* precision;         // (chains, m): what likelihoods read
    T* completed;         // (chains, K): the point to whose residuals the variances are drawn

    // Whether they are drawn after this step.
    PATRAC_DEVICE bool follows(std::int64_t step) const { return count > 0 && (step + 1) % every == 0; }
};

// Values of one step, one from each block of Philox, see ValueStream of the CPU.
struct NormalValues {
    PhiloxKey key;
    std::uint64_t step, index = 0;
    PATRAC_DEVICE double next() {
        double normal[2];
        block_normals(key, index++, Purpose::variance_normal, step, normal);
        return normal[0];
    }
};
struct UniformValues {
    PhiloxKey key;
    std::uint64_t step, index = 0;
    PATRAC_DEVICE double next() { return uniform(key, index++, Purpose::variance_uniform, step); }
};

// The variances of one chain. A draw is tried: it takes the place of the values, and undo() gives them back.
template <class T>
struct ChainVariance {
    int count, n_outputs;
    double shape;
    const double* rate;  // (q,)
    GaussianTerms each;
    double *values, *previous, *squares;  // (q,)
    T* precision;                         // (m,)

    PATRAC_DEVICE ChainVariance(const DeviceVariance<T>& of, int chain, int set)
        : count(of.count),
          n_outputs(of.n_outputs),
          shape(of.shape),
          rate(of.rate + set * of.count),
          each{of.count > 0 ? of.terms[set] : 0.0},
          values(of.values + static_cast<std::int64_t>(chain) * of.count),
          previous(of.previous + static_cast<std::int64_t>(chain) * of.count),
          squares(of.squares + static_cast<std::int64_t>(chain) * of.count),
          precision(of.precision + static_cast<std::int64_t>(chain) * of.n_outputs) {}

    PATRAC_DEVICE double of_output(int c) const { return values[count == 1 ? 0 : c]; }

    // What l holds beside its sum over rows.
    PATRAC_DEVICE double constant() const {
        double sum = 0.0;
        for (int c = 0; c < count; ++c) sum += each.constant(values[c]);
        return sum;
    }
    // l at the residuals of `squares`.
    PATRAC_DEVICE double log_likelihood() const {
        double sum = 0.0;
        for (int c = 0; c < count; ++c) sum += each.log_likelihood(squares[c], values[c]);
        return sum;
    }

    // Called by one thread: draws all variances given `squares`.
    PATRAC_DEVICE void draw(PhiloxKey key, std::uint64_t step) const {
        NormalValues normals{key, step};
        UniformValues uniforms{key, step};
        for (int c = 0; c < count; ++c) {
            previous[c] = values[c];
            values[c] = inverse_gamma(normals, uniforms, shape + 0.5 * each.terms, rate[c] + 0.5 * squares[c]);
        }
        follow_values();
    }
    PATRAC_DEVICE void undo() const {
        for (int c = 0; c < count; ++c) values[c] = previous[c];
        follow_values();
    }

private:
    PATRAC_DEVICE void follow_values() const {
        for (int c = 0; c < n_outputs; ++c) precision[c] = static_cast<T>(1.0 / of_output(c));
    }
};

}  // namespace patrac::PATRAC_LEVEL
