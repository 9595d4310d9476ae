// What each instruction-set level offers to the dispatcher.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "cpu/levels/elementary_names.hpp"
#include "cpu/levels/model.hpp"
#include "model/data_view.hpp"
#include "model/foreign_density.hpp"
#include "model/model_spec.hpp"
#include "model/quadratic.hpp"
#include "shared/likelihood.hpp"
#include "shared/purpose.hpp"

namespace patrac {

using PhiloxWords = std::array<std::uint32_t, 4>;

// The functions of one level for one element type.
template <class T>
struct LevelFunctions {
    std::unique_ptr<Model<T>> (*make_model)(const ModelSpec&, const DataView<T>&);
    bool (*sample_quadratic)(const Quadratic&, const RunConfig&, const RunBuffers<T>&, const Monitor&);
    void (*normals)(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
                    std::int64_t steps, std::int64_t count);
    void (*elementary)(Elementary function, const T* x, T* y, std::int64_t count);
    // Repeats an operation and returns how often: an elementary function, a multiply-add or a normal.
    std::int64_t (*repeat_elementary)(Elementary function, std::int64_t repeats);
    std::int64_t (*repeat_multiply_add)(std::int64_t repeats);
    std::int64_t (*repeat_normals)(std::int64_t repeats);
};

struct Level {
    const char* name;
    LevelFunctions<float> f32;
    LevelFunctions<double> f64;
    bool (*sample_foreign)(const ForeignDensity&, const RunConfig&, const RunBuffers<double>&, const Monitor&);
    PhiloxWords (*philox)(const PhiloxWords& counter, const std::array<std::uint32_t, 2>& key);
    std::array<std::uint32_t, 2> (*stream_key)(std::uint64_t seed, std::uint32_t chain);
    double (*cholesky)(const double* a, std::int64_t size, double* u, double* w, double* inverse);
};

}  // namespace patrac
