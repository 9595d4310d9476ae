// Configuration of a run of chains, its output buffers and its progress.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "shared/adaptation.hpp"
#include "shared/kernels.hpp"

namespace patrac {

// The noise variances of a Gaussian likelihood, where they are drawn: q of them, one for all outputs or one for each of
// several, a priori independent and inverse-gamma, density ∝ x^(-shape-1) exp(-rate/x).
struct SampledVariance {
    double shape = 0.0;
    std::vector<double> rate;     // (sets, q); empty where the variances are fixed
    std::vector<double> initial;  // (sets, q)
    std::int64_t every = 1;       // steps from one draw of them to the next
    std::int64_t sets = 1;        // data sets of the run, which on the CPU is one

    bool sampled() const { return !rate.empty(); }
    std::int64_t count() const { return std::ssize(rate) / sets; }  // q, 0 where they are fixed
};

// The scales of the prior variances, where they are drawn. The parameters of group g have the variance of
// RunBuffers::prior_variance times scale_g, a priori inverse-gamma, density ∝ x^(-shape-1) exp(-rate/x).
struct SampledScales {
    std::vector<std::int32_t> group;  // (K,), each in 0 .. groups - 1; empty where the variances are fixed
    std::int64_t groups = 0;          // G
    double shape = 0.0;
    double rate = 0.0;
    std::int64_t every = 1;   // steps from one draw of them to the next
    bool interweave = false;  // before each draw, one scale moves together with its parameters

    bool sampled() const { return !group.empty(); }
};

// A block of an orthogonal map of the chain's whitened coordinates: those from `first` on, a matrix X (rows, columns),
// row by row, stand for the parameters A X B'. Blocks are disjoint and cover all coordinates.
struct RotationBlock {
    std::int64_t first = 0, rows = 0, columns = 0;
    const double* row_axes = nullptr;     // A, (rows, rows), orthogonal
    const double* column_axes = nullptr;  // B, (columns, columns), orthogonal
};

// Where a run may end before its last draw. All chains wait after every `every` draws, 0 for never, and the waiting
// thread calls is_enough(). The buffers then hold these draws of each chain. True ends the run.
struct EarlyEnd {
    std::int64_t every = 0;
    std::function<bool()> is_enough;
};

struct RunConfig {
    KernelKind kernel = KernelKind::pcnl;
    bool collapse = false;  // integrate the output weights out (Gaussian)
    // Of a wide first layer on a device, the gradient from factors of 8 significant bits; no other run has one.
    bool coarse_gradient = false;
    double persistence = 0.0;  // share of the noise that a step keeps of the step before, [0, 1)
    SampledVariance variance;
    SampledScales scales;
    double step_size = 0.0;      // delta (pCNL, mGrad) or beta (pCN) at the first step
    double step_size_max = 0.0;  // 2 (pCNL), 1 (pCN) or infinite
    std::vector<Phase> warmup;
    Phase sampling;                   // steps unused; adapt = the paper's adaptation while sampling
    std::int64_t adapt_window = 200;  // steps between two adaptations of the step size
    std::int64_t draws = 0;
    std::int64_t thin = 1;
    std::int64_t chains = 0;
    EarlyEnd early_end;  // of runs on the CPU
    // Number of steps, counted over warm-up and sampling, at which the run ends if the chains have not made their
    // draws.
    std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
    // The states (Checkpoint) from which the chains of a run on the CPU go on; empty for a run that begins.
    std::vector<std::string> states;
    std::uint64_t seed = 0;
    std::int64_t threads = 1;
};

// Where a run writes; the caller allocates. K is the model's dimension, P the number of warm-up phases.
template <class T>
struct RunBuffers {
    const T* init = nullptr;                   // (chains, K)
    const double* prior_variance = nullptr;    // (K,)
    const double* step_factor = nullptr;       // (K,): of each coordinate's step size, or null for ones
    std::vector<RotationBlock> rotation;       // of the coordinates in which chains step; empty for theta itself
    T* theta = nullptr;                        // (chains, draws, K), or null where a device keeps them
    double* log_likelihood = nullptr;          // (chains, draws)
    double* log_prior = nullptr;               // (chains, draws), normalised
    double* acceptance_rate = nullptr;         // (chains, draws): over the `thin` steps that end in the draw
    double* step_size = nullptr;               // (chains, draws)
    double* variance = nullptr;                // (chains, draws, q) of the noise, or null
    double* prior_scales = nullptr;            // (chains, draws, G), or null
    double* warmup_acceptance = nullptr;       // (chains, P): over each whole phase
    double* warmup_step_size = nullptr;        // (chains, P): at the end of each phase
    std::int64_t* warmup_steps = nullptr;      // (P,): steps of each phase
    std::int64_t* warmup_stable = nullptr;     // (P,): 1 or 0 where a phase that ends once chains agree ended
    std::int64_t* nonfinite = nullptr;         // (chains,): proposals of sampling that were rejected as not finite
    std::int64_t* warmup_nonfinite = nullptr;  // (chains,): the same in warm-up
    std::int64_t* draws_done = nullptr;        // (chains,)
    std::vector<std::string>* states =
        nullptr;  // by chain, at the end of a run on the CPU that was not stopped, or null
};

struct Progress {
    std::int64_t steps_done = 0;  // summed over chains
    std::int64_t steps_total = 0;
    double acceptance_rate = 0.0;  // over all steps so far
};

// Called by the waiting thread about every 50 ms; returning false stops all chains at their next step.
using Monitor = std::function<bool(const Progress&)>;

}  // namespace patrac
