// The two parts of a chain, target and transition, as concepts: a missing member fails where the chain is instantiated.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "cpu/chain/noise.hpp"
#include "cpu/chain/state.hpp"
#include "cpu/tiles/likelihood.hpp"
#include "schedule/checkpoint.hpp"
#include "shared/kernels.hpp"

namespace patrac::PATRAC_LEVEL {

// What a chain samples: log-likelihood l and its gradient g at a point. One thread uses a target at a time.
//   Kept                      what it keeps with a point beside l and g
//   side_by_side              number of chains that one thread should step in turn
//   evaluate(state, gradient) l and, if asked, g of state.theta
//   make_kept()               room for what it keeps
//   place(theta, state)       the starting point of a chain from a draw, (full_dim,)
//   theta_of(state)           theta at a state, (dim,); the chain's coordinates may be others
//   dim(), full_dim()         of the chain and of a kept draw
//   output_normals()          standard normals that complete() takes
//   terms()                   of a Gaussian likelihood
//   prior_variance(given)     of the chain's coordinates, (dim,), `given` being theta's
//   complete(state, w, theta) writes a kept draw, (full_dim,), and returns its log-likelihood
//   draws_by_row()            whether a draw of the noise variances reads each row, not only sums of squares; then it
//   has draw_variances(theta, streams, shape, rate, out)  which draws them given theta, under their prior
//   sum_of_squares(state, theta, out)  of the residuals of each output, (m,), `theta` being the state completed
//   set_variance(state, ..)   other noise variances, (1,) or (m,), with what they change of the state
//   set_prior_variance(..)    other variances of theta, (full_dim,), with what they change of a state evaluated before;
//                             only where `follows_prior`: a whitened basis is that of one covariance
//   together()                optional: the rendezvous at which it is evaluated with those of other chains, or null
// A transition written for one target may not need evaluate(); the chain then calls it only where it reads l
// (Transition::finds_log_likelihood), see cpu/chain/diagonal_crank_nicolson.hpp.
template <class X, class T>
concept Target =
    requires(X target, const X given, State<T, typename X::Kept> state, const T* w, T* theta,
             const double* prior_variance, double* squares, const std::vector<double>& variance, bool gradient) {
        { X::side_by_side } -> std::convertible_to<std::int64_t>;
        { X::follows_prior } -> std::convertible_to<bool>;
        { target.evaluate(state, gradient) } -> std::same_as<void>;
        { target.place(w, state) } -> std::same_as<void>;
        { given.theta_of(state) } -> std::same_as<const T*>;
        { given.make_kept() } -> std::same_as<typename X::Kept>;
        { given.dim() } -> std::same_as<std::int64_t>;
        { given.full_dim() } -> std::same_as<std::int64_t>;
        { given.output_normals() } -> std::same_as<std::int64_t>;
        { given.draws_by_row() } -> std::same_as<bool>;
        { given.terms() } -> std::convertible_to<GaussianTerms>;
        { given.prior_variance(prior_variance) } -> std::same_as<const double*>;
        { target.complete(state, w, theta) } -> std::same_as<double>;
        { target.sum_of_squares(state, w, squares) } -> std::same_as<void>;
        { target.set_variance(state, variance, gradient) } -> std::same_as<void>;
    };

// Whether a target may hold a precision of each row, given which its noise is normal. Where draws_by_row(), it does:
// draw_variances() draws them too, theta being the state completed, and
//   restore_precisions()           takes back those of the last draw
//   mixture_log_likelihood(theta)  l of a kept draw, (full_dim,), over the precisions
//   exchange(saved)                writes or reads them
template <class X, class T>
concept MixtureTarget = requires(X target, const T* theta, Checkpoint saved) {
    { target.restore_precisions() } -> std::same_as<void>;
    { target.mixture_log_likelihood(theta) } -> std::same_as<double>;
    { target.exchange(saved) } -> std::same_as<void>;
};

// A step that leaves the posterior of a target invariant.
//   finds_log_likelihood      whether a step leaves l in the state
//   follows_prior             whether the variances may change between steps; then it has
//   set_prior_variance(..)    other variances of the chain's coordinates, (dim,), which outlive the transition
//   uses_gradient()           whether it needs g there
//   exchange(state)           writes or reads what a step leaves to the next one beside the state
//   set_step_size(step_size)  beta of pCN, delta of the gradient kernels
//   set_persistence(a)        where the noise persists; ignored elsewhere
//   start(state, ..)          evaluates the starting point; false if it is not finite
//   step(.., free_from)       without the accept test where the log ratio is at least free_from
//   step(current, proposed, ..) makes the step; where it moved, the new point is in `proposed`
template <class X, class T, class Sampled>
concept Transition =
    Target<Sampled, T> && std::constructible_from<X, KernelKind, const double*, std::int64_t, double, const double*> &&
    requires(X transition, const X given, StateOf<T, Sampled> state, const StateOf<T, Sampled> current, Sampled target,
             const PhiloxRoundKeys keys, StepNoise<T> noise, std::int64_t step, double step_size, double free_from,
             Checkpoint saved) {
        { X::finds_log_likelihood } -> std::convertible_to<bool>;
        { X::follows_prior } -> std::convertible_to<bool>;
        { given.uses_gradient() } -> std::same_as<bool>;
        { transition.set_step_size(step_size) } -> std::same_as<void>;
        { transition.set_persistence(step_size) } -> std::same_as<void>;
        { transition.start(state, target, keys) } -> std::same_as<bool>;
        { transition.exchange(saved) } -> std::same_as<void>;
        { transition.step(current, state, target, noise, step, free_from) } -> std::same_as<Outcome>;
    };

// Whether chains of this transition on this target may sample the scales of the prior.
template <class X, class T, class Sampled>
concept FollowsPrior =
    Transition<X, T, Sampled> && X::follows_prior && Sampled::follows_prior &&
    requires(X transition, StateOf<T, Sampled> state, Sampled target, const double* prior_variance, bool gradient) {
        { transition.set_prior_variance(prior_variance) } -> std::same_as<void>;
        { target.set_prior_variance(state, prior_variance, gradient) } -> std::same_as<void>;
    };

}  // namespace patrac::PATRAC_LEVEL
