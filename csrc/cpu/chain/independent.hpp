// Independent draws from a target whose distribution is known: no Markov chain is needed.
#pragma once

#include <cstdint>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "schedule/checkpoint.hpp"
#include "shared/kernels.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
class Independent {
public:
    static constexpr bool finds_log_likelihood = true;
    static constexpr bool follows_prior = false;

    Independent(KernelKind, const double*, std::int64_t, double, const double*) {}

    bool uses_gradient() const { return false; }
    void set_step_size(double) {}
    void set_persistence(double) {}
    void exchange(Checkpoint&) const {}

    template <class Target>
    bool start(StateOf<T, Target>& state, Target& target, const PhiloxRoundKeys&) const {
        target.evaluate(state, false);
        return true;
    }

    template <class Target>
    Outcome step(const StateOf<T, Target>&, StateOf<T, Target>& proposed, Target& target, StepNoise<T>& noise,
                 std::int64_t step, double) const {
        target.draw(proposed, noise.normals(step));
        return {true, true, 0.0};
    }
};

}  // namespace patrac::PATRAC_LEVEL
