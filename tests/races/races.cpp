// Runs the device functions on emulated blocks of several threads, for the sanitizers of threads (a barrier that is
// missing between a write to shared memory and a read of it by another thread shows as a race), of addresses and of
// undefined behaviour. Ends with 0 where they find nothing.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "device.hpp"

namespace {

using namespace patrac;

struct Case {
    const char* name;
    Activation activation;
    LikelihoodKind likelihood;
    std::vector<std::int64_t> sizes;
    std::int64_t rows;
    KernelKind kernel;
    double persistence;
    bool collapse;
    bool everything_bayesian;    // else every second parameter
    std::int64_t variances = 0;  // of the noise, that are sampled
    std::int64_t chains = 2;     // one has the multiprocessor's memory for itself
    bool coarse = false;         // the gradient, in float32
};

template <class T>
void run(const Case& c) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    const auto draws = [&](std::int64_t count) {
        std::vector<double> values(static_cast<std::size_t>(count));
        for (double& value : values) value = 0.5 * normal(random);
        return values;
    };
    ModelSpec spec;
    Network& network = spec.network;
    network.activation = c.activation;
    std::int64_t dim = 0;
    for (std::size_t l = 0; l + 1 < c.sizes.size(); ++l) {
        Layer layer;
        layer.n_in = c.sizes[l];
        layer.n_out = c.sizes[l + 1];
        layer.weights = draws(layer.n_in * layer.n_out);
        layer.biases = draws(layer.n_out);
        layer.weight_mask.resize(layer.weights.size());
        layer.bias_mask.resize(layer.biases.size(), 1);
        for (std::size_t i = 0; i < layer.weight_mask.size(); ++i)
            dim += layer.weight_mask[i] = c.everything_bayesian || i % 2 == 0;
        dim += layer.n_out;
        network.layers.push_back(layer);
    }
    const std::int64_t m = c.sizes.back(), n_targets = targets_per_row(c.likelihood, m);
    std::vector<T> inputs;
    for (const double x : draws(c.rows * c.sizes.front())) inputs.push_back(static_cast<T>(x));
    std::vector<double> targets = draws(c.rows * n_targets), weights(static_cast<std::size_t>(c.rows), 1.0);
    if (c.likelihood != LikelihoodKind::gaussian)
        for (double& target : targets) target = target > 0.0;
    DataView<T> data;
    data.n_rows = c.rows;
    data.targets = targets.data();
    data.row_weights = weights.data();
    spec.likelihood.kind = c.likelihood;
    for (const std::string_view name : traits_of(c.likelihood).parameters)
        if (!name.empty()) spec.likelihood.parameters.emplace_back(static_cast<std::size_t>(m), 0.5);
    const InputSource host{{inputs.data(), sizeof(T) == 4 ? InputType::floats : InputType::doubles, c.sizes.front(), 1},
                           c.rows,
                           c.sizes.front(),
                           {},
                           nullptr};
    // Sent to the device, or folded where they are there.
    const auto there = take_inputs("emulated:4", host, true);
    const auto model = make_device_model<T>(
        "emulated:4",
        {flatten_for_device<T>("emulated:4", spec, data, c.everything_bayesian ? there->source() : host)});
    std::vector<T> back(inputs.size());
    there->download(back.data());
    if (there->inspect(1e6).bad != 0 || back != inputs) std::abort();

    RunConfig config;
    config.kernel = c.kernel;
    config.collapse = c.collapse;
    config.coarse_gradient = c.coarse && sizeof(T) == 4;
    config.persistence = c.persistence;
    config.step_size = c.kernel == KernelKind::pcn ? 0.1 : 0.01;
    config.step_size_max = 1.0;
    // Beyond the first look and the first window of adaptation, so that chains go on and their step sizes are written.
    config.warmup = {Phase{.steps = 12, .adapt = true, .target = 0.6, .first_look = 8}};
    config.draws = 2;
    config.thin = 2;
    config.chains = c.chains;
    config.seed = 5;
    const auto q = static_cast<std::size_t>(c.variances);
    if (q > 0)
        config.variance = {.shape = 2.0, .rate = std::vector(q, 0.5), .initial = std::vector(q, 0.4), .every = 2};
    const auto size = static_cast<std::size_t>(config.chains * config.draws);
    std::vector<T> init(static_cast<std::size_t>(config.chains * dim), T(0.1)),
        theta(size * static_cast<std::size_t>(dim));
    std::vector<double> variance(static_cast<std::size_t>(dim), 0.5),
        values((5 + static_cast<std::size_t>(c.variances)) * size), per_chain(2 * 2);  // for two chains at most
    std::vector<std::int64_t> counts(5 * 2);
    RunBuffers<T> buffers;
    buffers.init = init.data();
    buffers.prior_variance = variance.data();
    buffers.theta = theta.data();
    buffers.log_likelihood = values.data();
    buffers.log_prior = values.data() + size;
    buffers.acceptance_rate = values.data() + 2 * size;
    buffers.step_size = values.data() + 3 * size;
    buffers.variance = values.data() + 5 * size;
    buffers.warmup_acceptance = per_chain.data();
    buffers.warmup_step_size = per_chain.data() + 2;
    buffers.warmup_steps = counts.data();
    buffers.warmup_stable = counts.data() + 2;
    buffers.nonfinite = counts.data() + 4;
    buffers.warmup_nonfinite = counts.data() + 6;
    buffers.draws_done = counts.data() + 8;
    model->sample(config, {config.seed}, buffers, [](const Progress&) { return true; });
    std::printf("%s, float%zu: ran\n", c.name, 8 * sizeof(T));
}

}  // namespace

int main() {
    using enum Activation;
    using enum LikelihoodKind;
    const std::vector<Case> cases = {
        {"pCN", tanh, gaussian, {2, 5, 1}, 20, KernelKind::pcn, 0.0, false, true},
        {"pCNL, scattered parameters", tanh, gaussian, {2, 6, 5, 1}, 20, KernelKind::pcnl, 0.0, false, false},
        {"mGrad with persistent noise, tiles",
         silu,
         categorical,
         {3, 24, 24, 3},
         600,
         KernelKind::mgrad,
         0.9,
         false,
         true},
        {"evaluations that blocks share, a wide first layer",
         tanh,
         categorical,
         {260, 5, 3},
         770,
         KernelKind::pcnl,
         0.0,
         false,
         true},
        {"a coarse gradient of a wide first layer",
         tanh,
         categorical,
         {260, 5, 3},
         70,
         KernelKind::mgrad,
         0.0,
         false,
         true,
         0,
         2,
         true},
        {"one chain, whose reverse pass alternates",
         tanh,
         gaussian,
         {2, 6, 7, 5, 1},
         20,
         KernelKind::pcnl,
         0.0,
         false,
         true,
         0,
         1},
        {"mGrad, Bernoulli", gelu, bernoulli, {2, 5, 2}, 30, KernelKind::mgrad, 0.0, false, true},
        {"collapsed", tanh, gaussian, {2, 5, 4, 2}, 30, KernelKind::mgrad, 0.9, true, true},
        {"collapsed, scattered, tiles", relu, gaussian, {3, 24, 24, 2}, 600, KernelKind::pcnl, 0.0, true, false},
        {"a sampled variance", tanh, gaussian, {2, 5, 2}, 30, KernelKind::pcnl, 0.0, false, true, 1},
        {"sampled variances", tanh, gaussian, {2, 5, 2}, 30, KernelKind::mgrad, 0.9, false, false, 2},
        {"sampled variances, collapsed", tanh, gaussian, {2, 5, 4, 2}, 30, KernelKind::mgrad, 0.9, true, true, 2},
        {"a sampled variance, shared", tanh, gaussian, {3, 12, 1}, 1100, KernelKind::mgrad, 0.9, false, true, 1},
    };
    for (const Case& c : cases) {
        run<float>(c);
#if !defined(PATRAC_SANITIZED_WARP)  // barriers are the same for both types; what lies where is not
        run<double>(c);
#endif
    }
    return 0;
}
