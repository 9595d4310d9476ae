// A chain of one block: pCN, pCNL and mGrad with their warm-up (twin of sampling/crank_nicolson.hpp and chain.hpp).
#pragma once

#include <cmath>
#include <type_traits>

#include "../shared/adaptation.hpp"
#include "../shared/kernels.hpp"
#include "collapsed.hpp"
#include "noise.hpp"
#include "tile.hpp"

namespace patrac::PATRAC_LEVEL {

// What a chain keeps between launches beside its arrays.
struct DeviceChain {
    PhaseProgress progress;
    double log_likelihood = 0.0;  // collapsed: at the conditional mean of the output weights
    double marginal = 0.0;        // what the density has beside it
    double threshold = 0.0;       // of the accept test, where the noise persists
    std::int64_t accepted = 0, nonfinite = 0, warmup_nonfinite = 0;
    std::int64_t steps_since_draw = 0, accepted_since_draw = 0;
    std::int64_t blocks = 0;  // full ones of the phase under way
    std::int32_t starts = 0;  // 1 if l and g are finite at the starting point
};

// One launch: `steps` steps of every chain, all within one phase of the warm-up or within sampling.
template <class T>
struct ChainLaunch {
    DevicePlan<T> plan;
    DeviceCollapse collapse;  // no groups where nothing is collapsed
    int dim;                  // coordinates of the chain: K, or K_h where the output weights are integrated out
    WorkspaceLayout layout;
    T* workspace;  // (chains, layout.size), or null: in shared memory
    KernelKind kernel;
    double persistence;
    bool start;     // its one step evaluates the starting points
    bool sampling;  // keep draws
    Phase phase;
    std::int64_t adapt_window;
    double step_size_max;
    std::int64_t first_step, steps;

    const std::uint64_t* seeds;      // one for each data set
    int chains_of_set;               // chain c runs on data set c / chains_of_set
    T *theta, *gradient, *momentum;  // (chains, row)
    int row;                         // dim up to a whole four
    DeviceChain* chains;
    LogLikelihoodBlock* blocks;  // (chains, most_blocks)
    int most_blocks;

    std::int64_t thin;
    std::int64_t draws;                          // room for draws of this launch, each chain
    T* out_theta;                                // (chains, draws, K)
    double *out_log_likelihood, *out_log_prior;  // (chains, draws) each
    double *out_acceptance_rate, *out_step_size;
};

// The coefficients of one coordinate, see shared/kernels.hpp and sampling/crank_nicolson.hpp.
template <class T>
struct MoveCoefficients {
    T shrink, spread;  // s, (s (2 - s))^(1/2)

    PATRAC_DEVICE MoveCoefficients(KernelKind kernel, double step_size, T variance) {
        const T step = static_cast<T>(step_size);
        switch (kernel) {
            case KernelKind::pcn: shrink = pcn_shrink(step); break;
            case KernelKind::mgrad: shrink = mgrad_shrink(step, variance); break;
            default: shrink = pcnl_shrink(step);
        }
        spread = sqrt(shrink * (T(2) - shrink));
    }
    PATRAC_DEVICE T ratio() const { return shrink / (T(2) - shrink); }
};

template <class T, class Zeta, template <class, class> class Target>
class ChainBlock {
public:
    // `workspace` has layout.size elements that the block alone uses.
    PATRAC_DEVICE ChainBlock(const ThreadBlock& block, const ChainLaunch<T>& launch, int chain, T* workspace)
        : block_(block),
          launch_(launch),
          chain_(launch.chains[chain]),
          index_(chain),
          set_(chain / launch.chains_of_set),
          key_(stream_key(launch.seeds[set_], static_cast<std::uint32_t>(chain % launch.chains_of_set))),
          sums_(reinterpret_cast<double*>(workspace + launch.layout.sums)),
          packed_(workspace + launch.layout.packed),
          theta_(workspace + launch.layout.theta),
          gradient_(workspace + launch.layout.gradient),
          proposed_gradient_(workspace + launch.layout.proposed_gradient),
          momentum_(workspace + launch.layout.momentum),
          variance_(launch.plan.prior_variance + set_ * launch.plan.prior_step),
          deviation_(launch.plan.prior_deviation + set_ * launch.plan.prior_step),
          target_(make_target(workspace)) {
        const DevicePlan<T>& plan = launch.plan;
        const T* const fixed = plan.packed + set_ * plan.packed_step;
        for (int i = block.thread; i < plan.n_packed; i += block.threads) packed_[i] = fixed[i];
        for (int r = block.thread; r < plan.stride; r += block.threads) workspace[launch.layout.ones + r] = T(1);
        for (int k = block.thread; k < launch.row; k += block.threads) {
            theta_[k] = launch.theta[row() + k];
            gradient_[k] = launch.gradient[row() + k];
            proposed_gradient_[k] = T(0);
            if (persists()) momentum_[k] = launch.momentum[row() + k];
        }
        log_likelihood_ = chain_.log_likelihood;
        marginal_ = chain_.marginal;
        threshold_ = chain_.threshold;
        block.sync();
    }

    // All of the launch, then the state goes back to the device's memory.
    PATRAC_DEVICE void run() {
        if (launch_.start) draw_noise();
#pragma unroll 1
        for (std::int64_t s = 0; s < launch_.steps; ++s) step(launch_.first_step + s);
        for (int k = block_.thread; k < launch_.row; k += block_.threads) {
            launch_.theta[row() + k] = theta_[k];
            launch_.gradient[row() + k] = gradient_[k];
            if (persists()) launch_.momentum[row() + k] = momentum_[k];
        }
        if (block_.thread != 0) return;
        chain_.log_likelihood = log_likelihood_;
        chain_.marginal = marginal_;
        chain_.threshold = threshold_;
    }

private:
    static constexpr int group = normals_of_block<T>;

    PATRAC_DEVICE Target<T, Zeta> make_target(T* workspace) const {
        const DevicePlan<T>& plan = launch_.plan;
        const TileBlock<T, Zeta> tile{block_,
                                      plan,
                                      plan.tiles + set_ * plan.tiles_step,
                                      packed_,
                                      workspace + launch_.layout.value,
                                      workspace + launch_.layout.pre,
                                      workspace + launch_.layout.ones};
        if constexpr (std::is_same_v<Target<T, Zeta>, PlainTarget<T, Zeta>>) {
            return {tile};
        } else {
            const std::int64_t kept = launch_.collapse.factor_size + launch_.collapse.alpha_size;
            return {tile,
                    launch_.collapse,
                    launch_.layout.collapse,
                    workspace,
                    sums_,
                    launch_.collapse.kept + index_ * kept};
        }
    }

    PATRAC_DEVICE bool persists() const { return launch_.persistence > 0.0; }
    PATRAC_DEVICE bool uses_gradient() const { return launch_.kernel != KernelKind::pcn; }
    PATRAC_DEVICE std::int64_t row() const { return static_cast<std::int64_t>(index_) * launch_.row; }
    PATRAC_DEVICE MoveCoefficients<T> move(int k) const { return {launch_.kernel, step_size_, variance_[k]}; }

    // The first noise and the first threshold of a chain that keeps them.
    PATRAC_DEVICE void draw_noise() {
        if (!persists()) return;
        for (int b = block_.thread; b * group < launch_.row; b += block_.threads) {
            T w[group];
            block_normals(key_, static_cast<std::uint64_t>(b), Purpose::persistence, 0, w);
            for (int i = 0; i < group; ++i) momentum_[b * group + i] = w[i];
        }
        threshold_ = 2.0 * uniform(key_, 0, Purpose::persistence, 1) - 1.0;
    }

    // To start, the state itself is proposed and taken.
    PATRAC_DEVICE void step(std::int64_t step) {
        step_size_ = chain_.progress.step_size;
        propose(static_cast<std::uint64_t>(step));
        block_.sync();
        double sum[3] = {target_.evaluate(uses_gradient() ? proposed_gradient_ : nullptr), 0.0, 0.0};
        // The sums of CrankNicolson::log_ratio.
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) {
            const double from = static_cast<double>(theta_[k]), to = static_cast<double>(proposed(k));
            const double at_from = static_cast<double>(gradient_[k]);
            const double at_to = static_cast<double>(proposed_gradient_[k]), both = at_to + at_from;
            const T r = move(k).ratio();
            const double pull = static_cast<double>(r) * (to + from) - static_cast<double>(r * variance_[k]) * both;
            sum[1] = fma(to - from, both, sum[1]);
            sum[2] = fma(at_to - at_from, pull, sum[2]);
        }
        sum_over_block(block_, sum, sums_);
        const double log_likelihood = launch_.plan.constants[2 * set_] + sum[0], marginal = target_.marginal();
        const double ratio = (log_likelihood + marginal) - (log_likelihood_ + marginal_) + 0.5 * (sum[2] - sum[1]);
        const bool finite = is_finite(ratio);
        const bool moved =
            launch_.start || (finite && (launch_.phase.accept_all || accepts(ratio, static_cast<std::uint64_t>(step))));
        take(moved);
        if (moved) {
            log_likelihood_ = log_likelihood;
            marginal_ = marginal;
            target_.accepted();
        }
        if (block_.thread == 0) {
            if (launch_.start)
                chain_.starts = finite;
            else
                book(moved, finite, ratio);
        }
        block_.sync();
        if (launch_.sampling && chain_.steps_since_draw == launch_.thin) keep_draw(step);
    }

    // v into packed_; the noise that persists is refreshed first.
    PATRAC_DEVICE void propose(std::uint64_t step) {
        if (launch_.start) {
            for (int k = block_.thread; k < launch_.dim; k += block_.threads)
                packed_[launch_.plan.position[k]] = theta_[k];
            return;
        }
#pragma unroll 1
        for (int b = block_.thread; b * group < launch_.dim; b += block_.threads) {
            T w[group];
            block_normals(key_, static_cast<std::uint64_t>(b), Purpose::proposal, step, w);
#pragma unroll
            for (int i = 0; i < group; ++i) {
                const int k = b * group + i;
                if (k >= launch_.dim) continue;
                const MoveCoefficients<T> c = move(k);
                if (persists()) {
                    const T kept = static_cast<T>(launch_.persistence) * (T(1) - c.shrink);
                    w[i] = fma(kept, momentum_[k], sqrt(T(1) - kept * kept) * w[i]);
                    momentum_[k] = w[i];
                }
                // Added to u, see shared/kernels.hpp.
                const T u = theta_[k],
                        change = fma(variance_[k] * c.shrink, gradient_[k], deviation_[k] * c.spread * w[i]);
                packed_[launch_.plan.position[k]] = u + (change - c.shrink * u);
            }
        }
    }

    PATRAC_DEVICE T proposed(int k) const { return packed_[launch_.plan.position[k]]; }

    // CrankNicolson::below_threshold where the noise persists.
    PATRAC_DEVICE bool accepts(double log_ratio, std::uint64_t step) {
        const double log_uniform = log_unit(uniform(key_, 0, Purpose::acceptance, step));
        if (!persists()) return log_ratio >= 0.0 || log_uniform < log_ratio;
        threshold_ += 0.1 * (0.95 + 0.1 * exp(log_uniform));
        if (threshold_ > 1.0) threshold_ -= 2.0;
        const double ratio = exp(log_ratio);
        if (!(abs(threshold_) < ratio)) return false;
        threshold_ /= ratio;
        return true;
    }

    // The proposal becomes the state, or the noise that persists is turned round. CrankNicolson::turn().
    PATRAC_DEVICE void take(bool moved) {
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) {
            if (persists() && !launch_.start) {
                const T p = momentum_[k];
                if (moved) {
                    const MoveCoefficients<T> c = move(k);
                    const T push = sqrt(c.ratio()) * deviation_[k];
                    const T at = (T(1) - c.shrink) * fma(push, gradient_[k], p) - c.spread / deviation_[k] * theta_[k];
                    momentum_[k] = fma(push, proposed_gradient_[k], at);
                } else {
                    momentum_[k] = -p;
                }
            }
            if (!moved) continue;
            theta_[k] = proposed(k);
            gradient_[k] = proposed_gradient_[k];
        }
    }

    PATRAC_DEVICE void book(bool moved, bool finite, double ratio) {
        if (!finite) ++(launch_.sampling ? chain_.nonfinite : chain_.warmup_nonfinite);
        chain_.accepted += moved;
        if (launch_.sampling) {
            ++chain_.steps_since_draw;
            chain_.accepted_since_draw += moved;
        }
        const double log_acceptance = !finite ? -HUGE_VAL : launch_.phase.accept_all ? 0.0 : ratio;
        PhaseProgress& progress = chain_.progress;
        if (!progress.record(launch_.phase, launch_.adapt_window, launch_.step_size_max, moved, log_acceptance,
                             log_likelihood_ + marginal_))
            return;
        launch_.blocks[static_cast<std::int64_t>(index_) * launch_.most_blocks + chain_.blocks++] = progress.block;
        progress.block = {};
    }

    PATRAC_DEVICE void keep_draw(std::int64_t step) {
        double sum[2] = {0.0, 0.0};  // theta' C^-1 theta, and l beyond that of the state
        const std::int64_t at = index_ * launch_.draws + kept_;
        T* const out = launch_.out_theta + at * launch_.plan.dim;
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) {
            const double x = static_cast<double>(theta_[k]);
            sum[0] = fma(x * x, 1.0 / static_cast<double>(variance_[k]), sum[0]);
            out[k] = theta_[k];
        }
        target_.complete(key_, static_cast<std::uint64_t>(step), variance_, out, sum[0], sum[1]);
        sum_over_block(block_, sum, sums_);
        ++kept_;
        if (block_.thread == 0) {
            launch_.out_log_likelihood[at] = log_likelihood_ + sum[1];
            launch_.out_log_prior[at] = launch_.plan.constants[2 * set_ + 1] - 0.5 * sum[0];
            launch_.out_acceptance_rate[at] =
                static_cast<double>(chain_.accepted_since_draw) / static_cast<double>(launch_.thin);
            launch_.out_step_size[at] = chain_.progress.step_size;
            chain_.steps_since_draw = chain_.accepted_since_draw = 0;
        }
        block_.sync();
    }

    PATRAC_DEVICE static bool is_finite(double x) { return x - x == 0.0; }

    ThreadBlock block_;
    const ChainLaunch<T>& launch_;
    DeviceChain& chain_;
    int index_, set_;
    PhiloxKey key_;
    double* sums_;
    T *packed_, *theta_, *gradient_, *proposed_gradient_, *momentum_;
    const T *variance_, *deviation_;
    Target<T, Zeta> target_;
    // The same in every thread:
    double step_size_ = 0.0, log_likelihood_, marginal_, threshold_;
    std::int64_t kept_ = 0;
};

// The noise of one step, for the test that it is the CPU's.
template <class T>
PATRAC_DEVICE void write_normals(const ThreadBlock& block, PhiloxKey key, Purpose purpose, std::uint64_t step,
                                 int count, T* out) {
    constexpr int group = normals_of_block<T>;
    for (int b = block.thread; b * group < count; b += block.threads) {
        T w[group];
        block_normals(key, static_cast<std::uint64_t>(b), purpose, step, w);
        for (int i = 0; i < group && b * group + i < count; ++i) out[b * group + i] = w[i];
    }
}

}  // namespace patrac::PATRAC_LEVEL
