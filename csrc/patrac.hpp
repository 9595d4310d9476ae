// The facade: plain structs and one abstract model. The only core header that the bindings include.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/purpose.hpp"

namespace patrac {

enum class Activation : std::uint8_t { tanh, relu, gelu, silu, sigmoid };
enum class LikelihoodKind : std::uint8_t { gaussian, categorical, bernoulli };
enum class KernelKind : std::uint8_t { pcn, pcnl, mgrad, elliptical_slice, exact };

// One layer of weights; a mask entry of 1 marks a Bayesian parameter.
struct Layer {
    std::int64_t n_out = 0;
    std::int64_t n_in = 0;
    std::vector<double> weights;            // (n_out, n_in) row-major; trained values
    std::vector<double> biases;             // (n_out,)
    std::vector<std::uint8_t> weight_mask;  // (n_out, n_in)
    std::vector<std::uint8_t> bias_mask;    // (n_out,)
};

struct Network {
    Activation activation = Activation::tanh;
    std::vector<Layer> layers;  // hidden layers, then the output layer

    std::int64_t n_inputs() const { return layers.front().n_in; }
    std::int64_t n_outputs() const { return layers.back().n_out; }
};

// Numbers that each row's target takes: a label for Categorical, else one for each output.
inline std::int64_t targets_per_row(LikelihoodKind kind, std::int64_t n_outputs) {
    return kind == LikelihoodKind::categorical ? 1 : n_outputs;
}

struct Likelihood {
    LikelihoodKind kind = LikelihoodKind::gaussian;
    std::vector<double> variance;  // (m,), Gaussian only
};

// Borrowed arrays, read only while the call that takes the view runs, save inputs with an owner.
template <class T>
struct DataView {
    std::int64_t n_rows = 0;
    const T* inputs = nullptr;                  // (n, d): entry (r, j) at inputs[r * row_step + j * column_step]
    const std::uint8_t* byte_inputs = nullptr;  // in place of `inputs`, where they came as bytes
    std::int64_t row_step = 0;
    std::int64_t column_step = 0;
    const double* targets = nullptr;      // (n, m); class labels (n,) for Categorical; null when only f is wanted
    const double* row_weights = nullptr;  // (n,) factor of each row's term; null when targets is
    // Holds the inputs where the model may keep them and read them in place (it can if row_step is 1), else null.
    std::shared_ptr<const void> owner = nullptr;
};

// What the plan found in one layer; also the operation counts that the benchmarks' floor is made of.
struct LayerReport {
    std::int64_t nodes = 0;             // N_l
    std::int64_t varying = 0;           // nodes that some Bayesian parameter reaches
    std::int64_t varying_sources = 0;   // varying nodes read
    std::int64_t constant_sources = 0;  // constant nodes (or inputs) read through Bayesian weights
    std::int64_t offsets = 0;           // nodes with a cached offset, one value a row each
    std::int64_t bayesian = 0;          // Bayesian parameters of the layer
    std::int64_t gradient_block = 0;    // entries of the dense block that covers them, biases left out
};

// One stretch of the warm-up: `steps` transitions under one acceptance rule (docs/method.md, section 7).
struct Phase {
    std::int64_t steps = 0;
    bool adapt = false;
    double accept_low = 0.0;   // halve the step size at or below
    double accept_high = 1.0;  // multiply it by 4/3 at or above
    bool accept_all = false;   // every finite proposal is taken
    bool average = false;      // end with the geometric mean of the step sizes of the phase's second half
    double target = 0.0;       // where positive, approach this acceptance probability and not a band
    // Where positive, the chains are compared after this many steps, twice as many and so on, and the phase ends when
    // they are stable.
    std::int64_t first_look = 0;
};

// The noise variance of a Gaussian likelihood, where it is drawn: inverse-gamma, density ∝ x^(-shape-1) exp(-rate/x).
struct SampledVariance {
    bool sampled = false;
    double shape = 0.0;
    double rate = 0.0;
    double initial = 1.0;
};

struct RunConfig {
    KernelKind kernel = KernelKind::pcnl;
    bool collapse = false;     // integrate the output weights out (Gaussian)
    double persistence = 0.0;  // share of the noise that a step keeps of the step before, [0, 1)
    SampledVariance variance;
    double step_size = 0.0;      // delta (pCNL, mGrad) or beta (pCN) at the first step
    double step_size_max = 0.0;  // 2 (pCNL), 1 (pCN) or infinite
    std::vector<Phase> warmup;
    Phase sampling;                   // steps unused; adapt = the paper's adaptation while sampling
    std::int64_t adapt_window = 200;  // steps between two looks at the acceptance rate
    std::int64_t draws = 0;
    std::int64_t thin = 1;
    std::int64_t chains = 0;
    std::uint64_t seed = 0;
    std::int64_t threads = 1;
};

// Where a run writes; the caller allocates. K is the model's dimension, P the number of warm-up phases.
template <class T>
struct RunBuffers {
    const T* init = nullptr;                   // (chains, K)
    const double* prior_variance = nullptr;    // (K,)
    T* theta = nullptr;                        // (chains, draws, K), or null where a device keeps them
    double* log_likelihood = nullptr;          // (chains, draws)
    double* log_prior = nullptr;               // (chains, draws), normalised
    double* acceptance_rate = nullptr;         // (chains, draws): over the `thin` steps that end in the draw
    double* step_size = nullptr;               // (chains, draws)
    double* variance = nullptr;                // (chains, draws) of the noise, or null
    double* warmup_acceptance = nullptr;       // (chains, P): over each whole phase
    double* warmup_step_size = nullptr;        // (chains, P): at the end of each phase
    std::int64_t* warmup_steps = nullptr;      // (P,): that each phase took
    std::int64_t* warmup_stable = nullptr;     // (P,): 1 or 0 where a phase that may end early ended
    std::int64_t* nonfinite = nullptr;         // (chains,): proposals of sampling that were rejected as not finite
    std::int64_t* warmup_nonfinite = nullptr;  // (chains,): the same in warm-up
    std::int64_t* draws_done = nullptr;        // (chains,)
};

struct Progress {
    std::int64_t steps_done = 0;  // summed over chains
    std::int64_t steps_total = 0;
    double acceptance_rate = 0.0;  // over all steps so far
};

// l(x) = constant + slope . x - x' B x / 2, the Gaussian likelihood of a last layer.
struct Quadratic {
    double constant = 0.0;
    std::vector<double> slope;   // (K,)
    std::vector<double> matrix;  // B: its diagonal (K,), or all of it (K, K)
    // (K, K) from x to theta where B is diagonal, under the prior x ~ N(0, I); empty where x is theta.
    std::vector<double> to_theta;
    double terms = 0.0;     // outputs times the sum of row weights
    double variance = 1.0;  // of the noise that the numbers above are for, where it is sampled
};

// Called by the waiting thread about every 50 ms; returning false stops all chains at their next step.
using Monitor = std::function<bool(const Progress&)>;

template <class T>
class Model {
public:
    virtual ~Model() = default;

    virtual std::int64_t dim() const = 0;
    virtual std::int64_t n_inputs() const = 0;
    virtual std::int64_t n_outputs() const = 0;
    virtual std::vector<LayerReport> layer_reports() const = 0;
    virtual std::int64_t tile_rows() const = 0;
    virtual std::int64_t cached_bytes() const = 0;
    virtual std::string level() const = 0;

    // theta (batch, K) -> log_likelihood (batch,) and, unless null, gradient (batch, K).
    virtual void evaluate(const T* theta, std::int64_t batch, double* log_likelihood, T* gradient,
                          std::int64_t threads) const = 0;
    // f (batch, n, m) at new inputs (n, d).
    virtual void predict(const T* theta, std::int64_t batch, const T* inputs, std::int64_t n_rows, T* f,
                         std::int64_t threads) const = 0;
    // The same of the log marginal likelihood of the parameters below the output layer, theta (batch, hidden_dim);
    // prior_variance (K,). Gaussian likelihood.
    virtual void evaluate_collapsed(const T* theta, std::int64_t batch, const double* prior_variance,
                                    double* log_likelihood, T* gradient) const = 0;
    // K less the Bayesian parameters of the output layer.
    virtual std::int64_t hidden_dim() const = 0;
    // Log of the acceptance ratio of the move from -> to, both (K,), or (hidden_dim,) if `collapse`, before the minimum
    // with 0; for tests of a kernel.
    virtual double log_acceptance(const T* from, const T* to, const double* prior_variance, KernelKind kernel,
                                  double step_size, bool collapse) const = 0;
    // Returns false when the monitor ended the run early.
    virtual bool sample(const RunConfig& config, const RunBuffers<T>& buffers, const Monitor& monitor) const = 0;
};

// `companion`: a fixed network whose output is added to that of `network` (Sep). `level` as in simd_levels().
template <class T>
std::unique_ptr<Model<T>> make_model(const Network& network, const std::optional<Network>& companion,
                                     const Likelihood& likelihood, const DataView<T>& data, const std::string& level);

// Chains on a quadratic log-likelihood; buffers.init holds x. Returns as Model::sample does.
template <class T>
bool sample_quadratic(const Quadratic& form, const RunConfig& config, const RunBuffers<T>& buffers,
                      const Monitor& monitor, const std::string& level);

std::vector<std::string> simd_levels();  // compiled levels that this processor runs, plainest first
std::string default_simd_level();        // PATRAC_SIMD, else from a fixed rule by processor, never from a timing

// Standard normals of stream (seed, chain) and `purpose` at `steps` steps from `step` on: out (steps, count).
template <class T>
void standard_normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
                      std::int64_t steps, std::int64_t count, const std::string& level);

// Pieces of a level that tests and benchmarks reach one by one.
namespace testing {

std::vector<std::string> elementary_functions();
template <class T>
void elementary(const std::string& name, const T* x, T* y, std::int64_t count, const std::string& level);

// Does an operation over and over and returns how often: "multiply_add" (in registers), "normal" or an elementary
// function (in the first cache). A benchmark's floor is made of their rates.
template <class T>
std::int64_t repeat_operation(const std::string& name, std::int64_t repeats, const std::string& level);

using Words = std::array<std::uint32_t, 4>;
Words philox(const Words& counter, const std::array<std::uint32_t, 2>& key, const std::string& level);
std::array<std::uint32_t, 2> stream_key(std::uint64_t seed, std::uint32_t chain, const std::string& level);

}  // namespace testing
}  // namespace patrac
