// A chain run by one block, which keeps its state for all steps of a launch (twin of cpu/chain/chain.hpp).
#pragma once

#include <type_traits>

#include "cuda/chain/collapsed.hpp"
#include "cuda/chain/moves.hpp"

namespace patrac::PATRAC_LEVEL {

// `samples_variance`: noise variances are drawn. A draw may evaluate the target again, and a kernel that holds a second
// evaluation has twice the instructions and keeps fewer values in registers, so it is compiled apart.
template <class T, class Zeta, template <class, class> class Target, bool samples_variance>
class ChainBlock {
public:
    // `workspace` has layout.size elements that the block alone uses.
    PATRAC_DEVICE ChainBlock(const ThreadBlock& block, const ChainLaunch<T>& launch, int chain, T* workspace)
        : block_(block),
          launch_(launch),
          chain_(launch.chains[chain]),
          sums_(reinterpret_cast<double*>(workspace + launch.layout.sums)),
          moves_(launch, chain, workspace + launch.layout.packed, workspace + launch.layout.theta,
                 workspace + launch.layout.gradient, workspace + launch.layout.proposed_gradient,
                 workspace + launch.layout.momentum),
          target_(make_target(workspace)) {
        const DevicePlan<T>& plan = launch.plan;
        const T* const fixed = plan.packed + moves_.set * plan.packed_step;
        for (int i = block.thread; i < plan.n_packed; i += block.threads) moves_.packed[i] = fixed[i];
        for (int r = block.thread; r < plan.stride; r += block.threads) workspace[launch.layout.ones + r] = T(1);
        for (int k = block.thread; k < launch.row; k += block.threads) {
            moves_.theta[k] = launch.theta[row() + k];
            moves_.gradient[k] = launch.gradient[row() + k];
            moves_.proposed_gradient[k] = T(0);
            if (moves_.persists()) moves_.momentum[k] = launch.momentum[row() + k];
        }
        log_likelihood_ = chain_.log_likelihood;
        marginal_ = chain_.marginal;
        threshold_ = chain_.threshold;
        constant_ = moves_.constant();
        block.sync();
    }

    // All of the launch, then the state goes back to the device's memory.
    PATRAC_DEVICE void run() {
        if (launch_.start) draw_noise();
#pragma unroll 1
        for (std::int64_t s = 0; s < launch_.steps; ++s) step(launch_.first_step + s);
        for (int k = block_.thread; k < launch_.row; k += block_.threads) {
            launch_.theta[row() + k] = moves_.theta[k];
            launch_.gradient[row() + k] = moves_.gradient[k];
            if (moves_.persists()) launch_.momentum[row() + k] = moves_.momentum[k];
        }
        if (block_.thread != 0) return;
        chain_.log_likelihood = log_likelihood_;
        chain_.marginal = marginal_;
        chain_.threshold = threshold_;
    }

private:
    static constexpr int group = ChainMoves<T>::group;
    // Whether l and g of the target are rescaled to another variance of all outputs.
    static constexpr bool rescales = std::is_same_v<Target<T, Zeta>, TileTarget<T, Zeta>>;

    PATRAC_DEVICE Target<T, Zeta> make_target(T* workspace) const {
        const DevicePlan<T>& plan = launch_.plan;
        const TileBlock<T, Zeta> tile{block_,
                                      plan,
                                      plan.tiles + moves_.set * plan.tiles_step,
                                      plan.inputs + moves_.set * plan.inputs_step,
                                      moves_.likelihood_parameters(),
                                      moves_.packed,
                                      workspace + launch_.layout.value,
                                      workspace + launch_.layout.pre,
                                      workspace + launch_.layout.ones,
                                      nullptr,
                                      workspace + (launch_.layout.spare > 0 ? launch_.layout.spare : 0),
                                      launch_.layout.spare > 0};
        if constexpr (rescales) {
            return {tile};
        } else {
            const std::int64_t kept = launch_.collapse.factor_size + launch_.collapse.alpha_size;
            return {tile,
                    launch_.collapse.of_set(moves_.set),
                    launch_.layout.collapse,
                    workspace,
                    sums_,
                    launch_.collapse.kept + moves_.index * kept,
                    moves_.noise};
        }
    }

    PATRAC_DEVICE std::int64_t row() const { return static_cast<std::int64_t>(moves_.index) * launch_.row; }

    PATRAC_DEVICE void draw_noise() {
        if (!moves_.persists()) return;
        for (int b = block_.thread; b * group < launch_.row; b += block_.threads) moves_.start_momentum(b);
        threshold_ = moves_.start_threshold();
    }

    // At the start the state itself is proposed and accepted.
    PATRAC_DEVICE void step(std::int64_t step) {
        step_size_ = chain_.progress.step_size;
        propose(static_cast<std::uint64_t>(step));
        block_.sync();
        const double own = target_.evaluate(moves_.uses_gradient() ? moves_.proposed_gradient : nullptr);
        LogRatioSums<double> moved_by;
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) moves_.add_to_ratio(k, step_size_, moved_by);
        double sum[3] = {own, moved_by.along, moved_by.bend};
        sum_after_barrier(block_, sum, sums_);  // that of the proposal
        const double log_likelihood = constant_ + sum[0], marginal = target_.marginal();
        const double ratio = (log_likelihood + marginal) - (log_likelihood_ + marginal_) + 0.5 * (sum[2] - sum[1]);
        const bool finite = ChainMoves<T>::is_finite(ratio);
        const bool moved = moves_.moves(ratio, finite, static_cast<std::uint64_t>(step), threshold_);
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) moves_.take(k, moved, step_size_);
        if (moved) {
            log_likelihood_ = log_likelihood;
            marginal_ = marginal;
            target_.accepted();
        }
        bool draws_variance = false;
        if constexpr (samples_variance) {
            draws_variance = !launch_.start && launch_.noise.follows(step);
            if (draws_variance) draw_variance(static_cast<std::uint64_t>(step));
        }
        if (block_.thread == 0) moves_.record(chain_, moved, finite, ratio, log_likelihood_ + marginal_);
        block_.sync();
        if (moves_.keeps_draw(chain_)) keep_draw(static_cast<std::uint64_t>(step), draws_variance);
    }

    PATRAC_DEVICE void propose(std::uint64_t step) {
        if (launch_.start) {
            for (int k = block_.thread; k < launch_.dim; k += block_.threads) moves_.proposed(k) = moves_.theta[k];
            return;
        }
#pragma unroll 1
        for (int b = block_.thread; b * group < launch_.dim; b += block_.threads) moves_.propose(b, step, step_size_);
    }

    // The state completed to a draw of this step, (K,), with its l and theta' C^-1 theta.
    PATRAC_DEVICE void complete(std::uint64_t step, T* out) {
        double sum[2] = {0.0, 0.0};  // theta' C^-1 theta, and l beyond that of the state
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) {
            sum[0] += moves_.squared(k, moves_.theta[k]);
            out[k] = moves_.theta[k];
        }
        target_.complete(moves_.key, step, moves_.variance, out, sum[0], sum[1]);
        sum_over_block(block_, sum, sums_);
        full_squares_ = sum[0];
        full_log_likelihood_ = log_likelihood_ + sum[1];
    }

    // The noise variances given the completed state, a Gibbs scan: see the CPU's. A draw at which l or g is not finite
    // is refused, and nothing of the state has changed.
    PATRAC_DEVICE void draw_variance(std::uint64_t step) {
        const ChainVariance<T>& noise = moves_.noise;
        T* const full = launch_.noise.completed + static_cast<std::int64_t>(moves_.index) * launch_.plan.dim;
        complete(step, full);
        if (noise.count > 1)
            find_squares(full);
        else if (block_.thread == 0)
            noise.squares[0] = noise.each.sum_of_squares(full_log_likelihood_, noise.values[0]);
        if (block_.thread == 0) noise.draw(moves_.key, step);
        block_.sync();
        const double full_log_likelihood = noise.log_likelihood(), constant = noise.constant();
        bool finite;
        if constexpr (rescales)
            finite = noise.count > 1 ? evaluate_again(constant) : rescale(full_log_likelihood);
        else
            finite = evaluate_again(constant);
        if (finite) {
            full_log_likelihood_ = full_log_likelihood;
            constant_ = constant;
            return;
        }
        if (block_.thread != 0) return;  // a barrier follows the step
        noise.undo();
        moves_.record_refusal(chain_);
    }

    // Of the residuals of each output at theta (K,).
    PATRAC_DEVICE void find_squares(const T* theta) {
        for (int k = block_.thread; k < launch_.plan.dim; k += block_.threads) moves_.proposed(k) = theta[k];
        if (block_.thread == 0)
            for (int c = 0; c < moves_.noise.count; ++c) moves_.noise.squares[c] = 0.0;
        block_.sync();
#pragma unroll 1
        for (int t = 0; t < launch_.plan.n_tiles; ++t) {
            target_.tile.forward(t, 0, launch_.plan.n_layers);
#pragma unroll 1
            for (int c = 0; c < moves_.noise.count; ++c) {
                double sum[1] = {target_.tile.squares(t, c)};
                sum_over_block(block_, sum, sums_);
                if (block_.thread == 0) moves_.noise.squares[c] += sum[0];
            }
        }
    }

    // l and g of the state at variances that were just drawn; false where they are not finite and the old ones stay.
    // For one variance of all outputs both are proportional to its inverse, up to the constant of l.
    PATRAC_DEVICE bool rescale(double log_likelihood) {
        const double factor = moves_.noise.previous[0] / moves_.noise.values[0];
        const auto scaled = [&](int k) { return static_cast<T>(factor * static_cast<double>(moves_.gradient[k])); };
        double infinite[1] = {0.0};
        for (int k = block_.thread; k < launch_.dim; k += block_.threads)
            infinite[0] += !ChainMoves<T>::is_finite(static_cast<double>(scaled(k)));
        sum_over_block(block_, infinite, sums_);
        if (infinite[0] > 0.0 || !ChainMoves<T>::is_finite(log_likelihood)) return false;
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) moves_.gradient[k] = scaled(k);
        log_likelihood_ = log_likelihood;
        return true;
    }
    PATRAC_DEVICE bool evaluate_again(double constant) {
        for (int k = block_.thread; k < launch_.dim; k += block_.threads) moves_.proposed(k) = moves_.theta[k];
        block_.sync();
        double sum[2] = {target_.evaluate(moves_.uses_gradient() ? moves_.proposed_gradient : nullptr), 0.0};
        for (int k = block_.thread; k < launch_.dim; k += block_.threads)
            sum[1] += !ChainMoves<T>::is_finite(static_cast<double>(moves_.proposed_gradient[k]));
        sum_over_block(block_, sum, sums_);
        const double log_likelihood = constant + sum[0], marginal = target_.marginal();
        if (sum[1] > 0.0 || !ChainMoves<T>::is_finite(log_likelihood + marginal)) return false;
        for (int k = block_.thread; k < launch_.dim; k += block_.threads)
            moves_.gradient[k] = moves_.proposed_gradient[k];
        log_likelihood_ = log_likelihood;
        marginal_ = marginal;
        target_.accepted();
        return true;
    }

    // With `completed`, the state is the one that draw_variance() has completed.
    PATRAC_DEVICE void keep_draw(std::uint64_t step, bool completed) {
        const std::int64_t at = moves_.index * launch_.draws + kept_;
        T* const out = launch_.out_theta + at * launch_.plan.dim;
        if (completed) {
            const T* const full = launch_.noise.completed + static_cast<std::int64_t>(moves_.index) * launch_.plan.dim;
            for (int k = block_.thread; k < launch_.plan.dim; k += block_.threads) out[k] = full[k];
            block_.sync();  // all threads know by the chain's numbers that there is a draw to keep
        } else {
            complete(step, out);
        }
        ++kept_;
        if (block_.thread == 0) moves_.keep_numbers(chain_, at, step_size_, full_log_likelihood_, full_squares_);
        block_.sync();
    }

    ThreadBlock block_;
    const ChainLaunch<T>& launch_;
    DeviceChain& chain_;
    double* sums_;
    ChainMoves<T> moves_;
    Target<T, Zeta> target_;
    // The same in every thread:
    double step_size_ = 0.0, log_likelihood_, marginal_, threshold_;
    double constant_;                                        // of l, at the current noise variances
    double full_log_likelihood_ = 0.0, full_squares_ = 0.0;  // of the last completed state
    std::int64_t kept_ = 0;
};

// The noise of one step, for the test that it is the CPU's.
template <class T>
PATRAC_DEVICE void write_normals(const ThreadBlock& block, PhiloxKey key, Purpose purpose, std::uint64_t step,
                                 int count, T* out) {
    constexpr int group = normals_per_block<T>;
    for (int b = block.thread; b * group < count; b += block.threads) {
        T w[group];
        block_normals(key, static_cast<std::uint64_t>(b), purpose, step, w);
        for (int i = 0; i < group && b * group + i < count; ++i) out[b * group + i] = w[i];
    }
}

}  // namespace patrac::PATRAC_LEVEL
