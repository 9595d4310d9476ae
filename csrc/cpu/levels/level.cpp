// The table of functions of one level, and what it calls beside the tile passes: chains, models, tests. CMake compiles
// the three units of this folder once for each level: PATRAC_LEVEL is its namespace, PATRAC_VECTOR_BYTES its vectors.
#include "cpu/chain/diagonal_crank_nicolson.hpp"
#include "cpu/chain/foreign_target.hpp"
#include "cpu/chain/noise.hpp"
#include "cpu/levels/cholesky_testing.hpp"
#include "cpu/levels/cpu_model.hpp"
#include "cpu/levels/elementary_testing.hpp"
#include "cpu/levels/level.hpp"
#include "cpu/levels/operation_rates.hpp"
#include "schedule/interruption.hpp"

#define PATRAC_QUOTE(name) #name
#define PATRAC_NAME(name) PATRAC_QUOTE(name)

namespace patrac::PATRAC_LEVEL {
namespace {

template <class T>
LevelFunctions<T> functions() {
    return {
        [](const ModelSpec& spec, const DataView<T>& data) -> std::unique_ptr<Model<T>> {
            return std::make_unique<CpuModel<T>>(spec, data, PATRAC_NAME(PATRAC_LEVEL));
        },
        [](const Quadratic& form, const RunConfig& config, const RunBuffers<T>& buffers, const Monitor& monitor) {
            if (form.to_theta.empty())
                return run_targets([&form] { return DenseTarget<T>(form); }, config, buffers, monitor);
            const auto target = [&form] { return DiagonalTarget<T>(form); };
            if (config.kernel == KernelKind::exact)
                return run_transition<T, Independent<T>>(target, config, buffers, monitor);
            if (DiagonalCrankNicolson<T>::supports(config))
                return run_transition<T, DiagonalCrankNicolson<T>>(target, config, buffers, monitor);
            return run_targets(target, config, buffers, monitor);
        },
        [](std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out, std::int64_t steps,
           std::int64_t count) {
            AlignedArray<T> normals(noise_size<T>(1, count));
            const PhiloxRoundKeys keys(patrac::PATRAC_LEVEL::stream_key(seed, chain));
            for (std::int64_t s = 0; s < steps; ++s) {
                if (s % 64 == 0) Interruption::check();
                fill_steps(keys, purpose, step + static_cast<std::uint64_t>(s), 1, count, normals.data());
                std::copy_n(normals.data(), count, out + s * count);
            }
        },
        [](Elementary function, const T* x, T* y, std::int64_t count) {
            apply_elementary(function, x, y, static_cast<std::size_t>(count));
        },
        repeat_elementary<T>,
        repeat_multiply_add<T>,
        repeat_normals<T>,
    };
}

PhiloxWords philox_words(const PhiloxWords& c, const std::array<std::uint32_t, 2>& key) {
    const auto out = philox4x32_10(PhiloxBlock<std::uint64_t>{c[0], c[1], c[2], c[3]}, {key[0], key[1]});
    return {static_cast<std::uint32_t>(out.x0), static_cast<std::uint32_t>(out.x1), static_cast<std::uint32_t>(out.x2),
            static_cast<std::uint32_t>(out.x3)};
}

std::array<std::uint32_t, 2> key_words(std::uint64_t seed, std::uint32_t chain) {
    const PhiloxKey key = patrac::PATRAC_LEVEL::stream_key(seed, chain);
    return {key.k0, key.k1};
}

}  // namespace

Level level() {
    return {PATRAC_NAME(PATRAC_LEVEL),
            functions<float>(),
            functions<double>(),
            sample_foreign,
            philox_words,
            key_words,
            cholesky};
}

}  // namespace patrac::PATRAC_LEVEL
