// The moves of pCN, pCNL and mGrad, coordinate by coordinate (twin of cpu/chain/crank_nicolson.hpp and chain.hpp).
#pragma once

#include <cmath>

#include "cuda/block/noise.hpp"
#include "cuda/chain/noise_variance.hpp"
#include "cuda/model/device_plan.hpp"
#include "shared/adaptation.hpp"
#include "shared/crank_nicolson.hpp"

namespace patrac::PATRAC_LEVEL {

// The scalar state of a chain between launches.
struct DeviceChain {
    PhaseProgress progress;
    double log_likelihood = 0.0;  // collapsed: at the conditional mean of the output weights
    double marginal = 0.0;        // what the density has beside it
    double threshold = 0.0;       // of the accept test, where the noise persists
    std::int64_t accepted = 0, nonfinite = 0, warmup_nonfinite = 0;
    std::int64_t steps_since_draw = 0, accepted_since_draw = 0;
    std::int64_t batches = 0;  // full ones of the phase under way
    std::int32_t starts = 0;   // 1 if l and g are finite at the starting point
};

// One launch: `steps` steps of every chain, all within one phase of the warm-up or within sampling.
template <class T>
struct ChainLaunch {
    DevicePlan<T> plan;
    DeviceCollapse collapse;  // no groups where nothing is collapsed
    DeviceVariance<T> noise;  // none where the noise variances are fixed
    int dim;                  // coordinates of the chain: K, or K_h where the output weights are integrated out
    WorkspaceLayout layout;
    T* workspace;  // (chains, layout.size), or null: in shared memory
    KernelKind kernel;
    double persistence;
    bool start;     // its one step evaluates the starting points
    bool sampling;  // keep draws
    Phase phase;
    std::int64_t adapt_window;
    const T* step_factor;  // (sets, plan.prior_step): of each coordinate's step size, or null for ones
    std::int64_t first_step, steps;

    const std::uint64_t* seeds;      // one for each data set
    int chains_of_set;               // chain c runs on data set c / chains_of_set
    T *theta, *gradient, *momentum;  // (chains, row)
    int row;                         // dim up to a whole four
    DeviceChain* chains;
    LogLikelihoodBatch* batches;  // (chains, max_batches)
    int max_batches;

    std::int64_t thin;
    std::int64_t draws;                          // room for draws of this launch, each chain
    T* out_theta;                                // (chains, draws, K)
    double *out_log_likelihood, *out_log_prior;  // (chains, draws) each
    double *out_acceptance_rate, *out_step_size;
    double* out_variance;  // (chains, draws, q) of the noise
};

// One chain of a launch, wherever its arrays are. A coordinate's functions touch that coordinate alone; the caller
// decides which threads call them for which coordinates.
template <class T>
struct ChainMoves {
    const ChainLaunch<T>& launch;
    int index, set;
    PhiloxKey key;
    T* packed;  // parameters of the proposal, its entries of theta at plan.position
    T *theta, *gradient, *proposed_gradient, *momentum;  // (row,)
    const T* variance;                                   // (row,)
    const T* step_factor;                                // (row,), or null for ones
    ChainVariance<T> noise;

    static constexpr int group = normals_per_block<T>;

    PATRAC_DEVICE ChainMoves(const ChainLaunch<T>& of, int chain, T* packed_, T* theta_, T* gradient_,
                             T* proposed_gradient_, T* momentum_)
        : launch(of),
          index(chain),
          set(chain / of.chains_of_set),
          key(stream_key(of.seeds[set], static_cast<std::uint32_t>(chain % of.chains_of_set))),
          packed(packed_),
          theta(theta_),
          gradient(gradient_),
          proposed_gradient(proposed_gradient_),
          momentum(momentum_),
          variance(of.plan.prior_variance + set * of.plan.prior_step),
          step_factor(of.step_factor ? of.step_factor + set * of.plan.prior_step : nullptr),
          noise(of.noise, index, set) {}

    PATRAC_DEVICE bool persists() const { return launch.persistence > 0.0; }
    PATRAC_DEVICE bool uses_gradient() const { return patrac::uses_gradient(launch.kernel); }
    PATRAC_DEVICE MoveCoefficients<T> coefficients(int k, double step_size) const {
        const T own = static_cast<T>(step_size) * (step_factor ? step_factor[k] : T(1));
        return {launch.kernel, own, variance[k], static_cast<T>(launch.persistence)};
    }
    // What the terms of l read beside targets and row weights, and what l holds beside its sum over rows.
    PATRAC_DEVICE const T* likelihood_parameters() const {
        return noise.count > 0 ? noise.precision : launch.plan.parameters + set * launch.plan.parameters_step;
    }
    PATRAC_DEVICE double constant() const {
        return noise.count > 0 ? noise.constant() : launch.plan.constants[2 * set];
    }
    PATRAC_DEVICE T& proposed(int k) const { return packed[launch.plan.position[k]]; }

    // The first noise and the first threshold of a chain that keeps them.
    PATRAC_DEVICE void start_momentum(int b) const {
        T w[group];
        block_normals(key, static_cast<std::uint64_t>(b), Purpose::persistence, 0, w);
        for (int i = 0; i < group; ++i) momentum[b * group + i] = w[i];
    }
    PATRAC_DEVICE double start_threshold() const { return 2.0 * uniform(key, 0, Purpose::persistence, 1) - 1.0; }

    // v of coordinates group * b ..; the noise that persists is refreshed first.
    PATRAC_DEVICE void propose(int b, std::uint64_t step, double step_size) const {
        T w[group];
        block_normals(key, static_cast<std::uint64_t>(b), Purpose::proposal, step, w);
#pragma unroll
        for (int i = 0; i < group; ++i) {
            const int k = b * group + i;
            if (k >= launch.dim) continue;
            const MoveCoefficients<T> c = coefficients(k, step_size);
            if (persists()) {
                w[i] = refreshed_momentum(momentum[k], w[i], c.kept(), c.fresh());
                momentum[k] = w[i];
            }
            proposed(k) = proposal(theta[k], gradient[k], w[i], c.shrink, c.drift(), c.noise());
        }
    }

    // A coordinate's terms of the log ratio.
    PATRAC_DEVICE void add_to_ratio(int k, double step_size, LogRatioSums<double>& sums) const {
        const MoveCoefficients<T> c = coefficients(k, step_size);
        sums.add(static_cast<double>(theta[k]), static_cast<double>(proposed(k)), static_cast<double>(gradient[k]),
                 static_cast<double>(proposed_gradient[k]), static_cast<double>(c.ratio()),
                 static_cast<double>(c.ratio_variance()));
    }

    // x^2 / C, a coordinate's term of the log prior.
    PATRAC_DEVICE double squared(int k, T value) const {
        const double x = static_cast<double>(value);
        return x * x * (1.0 / static_cast<double>(variance[k]));
    }

    // Whether a step of this log ratio moves; the threshold is that of noise that persists.
    PATRAC_DEVICE bool moves(double log_ratio, bool finite, std::uint64_t step, double& threshold) const {
        return launch.start ||
               (finite && (log_ratio >= free_from(launch.phase, launch.dim) || accepts(log_ratio, step, threshold)));
    }

    // The proposal becomes the state, or the noise that persists changes its sign.
    PATRAC_DEVICE void take(int k, bool moved, double step_size) const {
        if (persists() && !launch.start) {
            const T p = momentum[k];
            if (moved) {
                const MoveCoefficients<T> c = coefficients(k, step_size);
                momentum[k] =
                    turned_momentum(p, theta[k], gradient[k], proposed_gradient[k], c.turned(), c.pull(), c.push());
            } else {
                momentum[k] = -p;
            }
        }
        if (!moved) return;
        theta[k] = proposed(k);
        gradient[k] = proposed_gradient[k];
    }

    // Called by one thread: records a step that ended at this log density, the prior's excluded.
    PATRAC_DEVICE void record(DeviceChain& chain, bool moved, bool finite, double ratio, double log_density) const {
        if (launch.start) {
            chain.starts = finite;
            return;
        }
        if (!finite) ++(launch.sampling ? chain.nonfinite : chain.warmup_nonfinite);
        chain.accepted += moved;
        if (launch.sampling) {
            ++chain.steps_since_draw;
            chain.accepted_since_draw += moved;
        }
        PhaseProgress& progress = chain.progress;
        if (!progress.record(launch.phase, launch.adapt_window, moved, recorded_ratio(finite, ratio), log_density))
            return;
        launch.batches[static_cast<std::int64_t>(index) * launch.max_batches + chain.batches++] = progress.batch;
        progress.batch = {};
    }

    PATRAC_DEVICE bool keeps_draw(const DeviceChain& chain) const {
        return launch.sampling && chain.steps_since_draw == launch.thin;
    }
    // Of one thread: the numbers of a draw that goes to place `at`, made by a step of this size; squares is the sum of
    // squared() over coordinates.
    PATRAC_DEVICE void keep_numbers(DeviceChain& chain, std::int64_t at, double step_size, double log_likelihood,
                                    double squares) const {
        launch.out_log_likelihood[at] = log_likelihood;
        launch.out_log_prior[at] = launch.plan.constants[2 * set + 1] - 0.5 * squares;
        launch.out_acceptance_rate[at] =
            static_cast<double>(chain.accepted_since_draw) / static_cast<double>(launch.thin);
        launch.out_step_size[at] = step_size;
        for (int c = 0; c < noise.count; ++c) launch.out_variance[at * noise.count + c] = noise.values[c];
        chain.steps_since_draw = chain.accepted_since_draw = 0;
    }

    // Called by one thread: a draw of the noise variances at which l or g is not finite was refused.
    PATRAC_DEVICE void record_refusal(DeviceChain& chain) const {
        ++(launch.sampling ? chain.nonfinite : chain.warmup_nonfinite);
    }

    PATRAC_DEVICE static bool is_finite(double x) { return x - x == 0.0; }

private:
    PATRAC_DEVICE bool accepts(double log_ratio, std::uint64_t step, double& threshold) const {
        const double log_uniform = log_unit(uniform(key, 0, Purpose::acceptance, step));
        return persists() ? below_threshold(log_ratio, log_uniform, threshold) : below_uniform(log_ratio, log_uniform);
    }
};

}  // namespace patrac::PATRAC_LEVEL
