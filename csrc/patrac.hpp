// The facade of the core on the CPU. The bindings include this header, descent.hpp, device.hpp and bridges.hpp and
// nothing else of the core.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/levels/model.hpp"
#include "model/data_view.hpp"
#include "model/foreign_density.hpp"
#include "model/model_spec.hpp"
#include "model/quadratic.hpp"
#include "schedule/interruption.hpp"
#include "schedule/run_config.hpp"
#include "shared/likelihood.hpp"
#include "shared/purpose.hpp"

namespace patrac {

// `level` as in simd_levels(). Throws std::invalid_argument where shapes do not fit.
template <class T>
std::unique_ptr<Model<T>> make_model(const ModelSpec& spec, const DataView<T>& data, const std::string& level);

// Chains on a quadratic log-likelihood; buffers.init holds x. Returns as Model::sample does.
template <class T>
bool sample_quadratic(const Quadratic& form, const RunConfig& config, const RunBuffers<T>& buffers,
                      const Monitor& monitor, const std::string& level);

// Chains on a log-likelihood that is given as a function. Returns as Model::sample does.
bool sample_foreign(const ForeignDensity& density, const RunConfig& config, const RunBuffers<double>& buffers,
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

// Repeats an operation and returns how often: "multiply_add" (in registers), "normal" or an elementary
// function (in the first cache). The benchmarks compute their floor from these rates.
template <class T>
std::int64_t repeat_operation(const std::string& name, std::int64_t repeats, const std::string& level);

using Words = std::array<std::uint32_t, 4>;
Words philox(const Words& counter, const std::array<std::uint32_t, 2>& key, const std::string& level);
std::array<std::uint32_t, 2> stream_key(std::uint64_t seed, std::uint32_t chain, const std::string& level);
// Computes U, A = U'U, W = (U')^-1 and A^-1, all (size, size), and returns log det A. Of A the upper triangle is read.
double cholesky(const double* a, std::int64_t size, double* u, double* w, double* inverse, const std::string& level);

}  // namespace testing
}  // namespace patrac
