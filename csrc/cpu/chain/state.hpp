// The state of a chain, and the outcome of a transition.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "cpu/tiles/aligned_array.hpp"
#include "cpu/tiles/wide.hpp"
#include "schedule/checkpoint.hpp"

namespace patrac::PATRAC_LEVEL {

// For targets that keep nothing else with a point.
struct Nothing {};

// A point with what the next step needs; the target chooses `Kept`.
template <class T, class Kept>
struct State {
    AlignedArray<T> theta;     // (K,)
    AlignedArray<T> gradient;  // (K,) of the log-likelihood; zero for kernels without it
    double log_likelihood = 0.0;
    Kept kept;

    State(std::int64_t dim, Kept more) : theta(dim), gradient(dim), kept(std::move(more)) {}
};

// What a target keeps with a point follows from the point, unless there is an overload for it.
template <class Kept>
void exchange_kept(Checkpoint&, Kept&) {}

template <class T, class Kept>
void exchange_state(Checkpoint& saved, State<T, Kept>& state) {
    saved.exchange_array(state.theta.data(), state.theta.size());
    saved.exchange_array(state.gradient.data(), state.gradient.size());
    saved.exchange(state.log_likelihood);
    exchange_kept(saved, state.kept);
}

template <class T, class Target>
using StateOf = State<T, typename Target::Kept>;

// The outcome of a step. If it moved, the new point is in `proposed`, which then becomes the current state.
struct Outcome {
    bool moved;
    bool finite;                  // of the proposal
    double log_ratio;             // of the acceptance, for the adaptation; -infinity where not finite
    std::int64_t rejections = 0;  // points evaluated and rejected
};

// False if an entry is infinite or NaN. An infinite weight into a saturated activation leaves l and g finite, so
// their values alone do not reveal it. The sum is over whole vectors: the array ends in zeros (AlignedArray).
template <class T>
bool all_finite(const AlignedArray<T>& x) {
    Vec<double> sum = {};
    for (std::int64_t i = 0; i < x.size(); i += lanes_v<Vec<double>>)
        sum += load_wide(x.data() + i) * broadcast<Vec<double>>(0.0);
    return reduce_add(sum) == 0.0;
}

// With what lies beyond the last entry in whole vectors.
template <class T>
void set_zero(AlignedArray<T>& x) {
    for (std::int64_t i = 0; i < x.size(); i += lanes_v<Vec<T>>) store<Vec<T>>(x.data() + i, Vec<T>{});
}

// Of a state's l and g.
template <class T, class Kept>
bool is_finite(const State<T, Kept>& state) {
    return std::isfinite(state.log_likelihood) && all_finite(state.gradient);
}

}  // namespace patrac::PATRAC_LEVEL
