// Chooses the instruction-set level and forwards the facade's functions to it.
#include "patrac.hpp"

#include <cstdlib>
#include <stdexcept>
#include <type_traits>

#include "cpu/levels/elementary_names.hpp"
#include "cpu/levels/level.hpp"

namespace patrac {

// CMake defines PATRAC_HAS_<level> for each level that it compiles (PATRAC_LEVELS).
#if defined(PATRAC_HAS_v2)
namespace v2 {
Level level();
}
#endif
#if defined(PATRAC_HAS_v3)
namespace v3 {
Level level();
}
#endif
#if defined(PATRAC_HAS_v4)
namespace v4 {
Level level();
}
#endif
#if defined(PATRAC_HAS_generic)
namespace generic {
Level level();
}
#endif

namespace {

#if defined(__x86_64__)
// Every processor with these instructions has the rest of its level; not every compiler knows the levels by name.
bool supports_v3() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}
bool supports_v4() {
    return supports_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

// The level of each kind of processor, by measurement (docs/performance.md) and not by width. AMD (Zen 4 and later)
// runs 64-byte vectors at the clock of narrow ones; on others they may lower it, which has not been measured.
const char* preferred_level() {
    if (supports_v4() && __builtin_cpu_is("amd")) return "v4";
    return supports_v3() ? "v3" : "v2";
}
#else
const char* preferred_level() {
    return "generic";
}
#endif

std::vector<Level> available_levels() {
    std::vector<Level> levels;
#if defined(PATRAC_HAS_v2)
    levels.push_back(v2::level());
#endif
#if defined(PATRAC_HAS_v3)
    if (supports_v3()) levels.push_back(v3::level());
#endif
#if defined(PATRAC_HAS_v4)
    if (supports_v4()) levels.push_back(v4::level());
#endif
#if defined(PATRAC_HAS_generic)
    levels.push_back(generic::level());
#endif
    if (levels.empty())
        throw std::runtime_error(
            "patrac_native was built without an instruction-set level that this processor runs; "
            "build it again with PATRAC_LEVELS at its default");
    return levels;
}

const std::vector<Level>& levels() {
    static const std::vector<Level> found = available_levels();
    return found;
}

const Level& find_level(const std::string& name, const char* argument) {
    std::string known;
    for (const Level& level : levels()) {
        if (name == level.name) return level;
        known += (known.empty() ? "" : ", ") + std::string(level.name);
    }
    throw std::invalid_argument(std::string(argument) + ": no instruction-set level '" + name +
                                "' on this machine; choose one of " + known);
}

template <class T>
const LevelFunctions<T>& functions(const std::string& name) {
    const Level& level = find_level(name, "level");
    if constexpr (std::is_same_v<T, float>)
        return level.f32;
    else
        return level.f64;
}

}  // namespace

std::vector<std::string> simd_levels() {
    std::vector<std::string> names;
    for (const Level& level : levels()) names.emplace_back(level.name);
    return names;
}

std::string default_simd_level() {
    const char* const forced = std::getenv("PATRAC_SIMD");
    if (forced && *forced) return find_level(forced, "PATRAC_SIMD").name;
    // A development build may lack the preferred level: the widest of those it has takes its place.
    for (const Level& level : levels())
        if (std::string(level.name) == preferred_level()) return level.name;
    return levels().back().name;
}

template <class T>
std::unique_ptr<Model<T>> make_model(const ModelSpec& spec, const DataView<T>& data, const std::string& level) {
    spec.check();
    return functions<T>(level).make_model(spec, data);
}

template <class T>
bool sample_quadratic(const Quadratic& form, const RunConfig& config, const RunBuffers<T>& buffers,
                      const Monitor& monitor, const std::string& level) {
    return functions<T>(level).sample_quadratic(form, config, buffers, monitor);
}

bool sample_foreign(const ForeignDensity& density, const RunConfig& config, const RunBuffers<double>& buffers,
                    const Monitor& monitor, const std::string& level) {
    return find_level(level, "level").sample_foreign(density, config, buffers, monitor);
}

template <class T>
void standard_normals(std::uint64_t seed, std::uint32_t chain, std::uint64_t step, Purpose purpose, T* out,
                      std::int64_t steps, std::int64_t count, const std::string& level) {
    functions<T>(level).normals(seed, chain, step, purpose, out, steps, count);
}

namespace testing {

std::vector<std::string> elementary_functions() {
    return names_of(patrac::elementary_functions);
}

template <class T>
void elementary(const std::string& name, const T* x, T* y, std::int64_t count, const std::string& level) {
    functions<T>(level).elementary(entry_of(patrac::elementary_functions, name, "name").value, x, y, count);
}

template <class T>
std::int64_t repeat_operation(const std::string& name, std::int64_t repeats, const std::string& level) {
    const LevelFunctions<T>& of = functions<T>(level);
    if (name == "multiply_add") return of.repeat_multiply_add(repeats);
    if (name == "normal") return of.repeat_normals(repeats);
    return of.repeat_elementary(entry_of(patrac::elementary_functions, name, "name").value, repeats);
}

Words philox(const Words& counter, const std::array<std::uint32_t, 2>& key, const std::string& level) {
    return find_level(level, "level").philox(counter, key);
}

std::array<std::uint32_t, 2> stream_key(std::uint64_t seed, std::uint32_t chain, const std::string& level) {
    return find_level(level, "level").stream_key(seed, chain);
}

double cholesky(const double* a, std::int64_t size, double* u, double* w, double* inverse, const std::string& level) {
    return find_level(level, "level").cholesky(a, size, u, w, inverse);
}

template void elementary<float>(const std::string&, const float*, float*, std::int64_t, const std::string&);
template void elementary<double>(const std::string&, const double*, double*, std::int64_t, const std::string&);
template std::int64_t repeat_operation<float>(const std::string&, std::int64_t, const std::string&);
template std::int64_t repeat_operation<double>(const std::string&, std::int64_t, const std::string&);

}  // namespace testing

#define PATRAC_INSTANTIATE(T)                                                                                   \
    template std::unique_ptr<Model<T>> make_model<T>(const ModelSpec&, const DataView<T>&, const std::string&); \
    template bool sample_quadratic<T>(const Quadratic&, const RunConfig&, const RunBuffers<T>&, const Monitor&, \
                                      const std::string&);                                                      \
    template void standard_normals<T>(std::uint64_t, std::uint32_t, std::uint64_t, Purpose, T*, std::int64_t,   \
                                      std::int64_t, const std::string&);
PATRAC_INSTANTIATE(float)
PATRAC_INSTANTIATE(double)
#undef PATRAC_INSTANTIATE

}  // namespace patrac
