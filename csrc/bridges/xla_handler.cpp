// The handlers that XLA calls: read the call frame, evaluate, and report what does not fit.
#include "bridges/xla_handler.hpp"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace patrac {
namespace {

// The published densities of one type.
template <class T>
class Table {
public:
    void add(std::int64_t number, std::shared_ptr<const Density<T>> density) {
        const std::lock_guard lock(mutex_);
        densities_.emplace(number, std::move(density));
    }
    void remove(std::int64_t number) {
        std::shared_ptr<const Density<T>> last;  // which is destroyed after the lock
        const std::lock_guard lock(mutex_);
        const auto found = densities_.find(number);
        if (found == densities_.end()) return;
        last = std::move(found->second);
        densities_.erase(found);
    }
    // Null if there is none of that number.
    std::shared_ptr<const Density<T>> find(std::int64_t number) const {
        const std::shared_lock lock(mutex_);
        const auto found = densities_.find(number);
        return found == densities_.end() ? nullptr : found->second;
    }

private:
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::int64_t, std::shared_ptr<const Density<T>>> densities_;
};

// It is never destroyed: XLA's threads may still call while the process ends.
template <class T>
Table<T>& table() {
    static Table<T>& only = *new Table<T>;
    return only;
}

xla::Error* error(const xla::CallFrame& frame, int code, const char* message) {
    xla::ErrorCreateArguments arguments{sizeof(xla::ErrorCreateArguments), nullptr, message, code};
    return frame.api->error_create(&arguments);
}

// The buffer of an argument or result; null if it is no buffer of T.
template <class T>
const xla::Buffer* buffer(const xla::Buffers& buffers, std::int64_t i) {
    if (buffers.types[i] != xla::buffer_argument) return nullptr;
    const auto* const found = static_cast<const xla::Buffer*>(buffers.values[i]);
    return found->type == (std::is_same_v<T, float> ? xla::type_f32 : xla::type_f64) ? found : nullptr;
}

// An attribute of type int64; -1 if there is none of that name.
std::int64_t attribute(const xla::Attributes& attributes, std::string_view name) {
    for (std::int64_t i = 0; i < attributes.size; ++i) {
        const xla::ByteSpan& own = *attributes.names[i];
        if (std::string_view(own.data, own.size) != name || attributes.types[i] != xla::scalar_attribute) continue;
        const auto& scalar = *static_cast<const xla::Scalar*>(attributes.values[i]);
        if (scalar.type == xla::type_s64) return *static_cast<const std::int64_t*>(scalar.value);
    }
    return -1;
}

std::int64_t size_of(const xla::Buffer& buffer) {
    std::int64_t size = 1;
    for (std::int64_t i = 0; i < buffer.rank; ++i) size *= buffer.dims[i];
    return size;
}

// The state of a compiled program.
struct Held {
    std::shared_ptr<const WideDensity> density;
};

std::int64_t state_type = 0;  // XLA writes it when the type is registered
xla::TypeInfo state_info{sizeof(xla::TypeInfo), nullptr, [](void* state) { delete static_cast<Held*>(state); }};

void describe(xla::Metadata& metadata, std::int64_t own_state) {
    metadata.version = xla::ApiVersion{sizeof(xla::ApiVersion), nullptr, xla::major_version, xla::minor_version};
    metadata.traits = 0;
    if (metadata.struct_size >= sizeof(xla::Metadata)) metadata.state_type = own_state;
}

template <class T, bool with_gradient>
xla::Error* evaluate(const xla::CallFrame& frame) {
    const auto reject = [&](const char* message) { return error(frame, xla::error_invalid_argument, message); };
    if (frame.arguments.struct_size != sizeof(xla::Buffers) || frame.results.struct_size != sizeof(xla::Buffers))
        return reject(
            "patrac_native: XLA's call frame has an unknown layout; install a version of jax that the extra "
            "patrac_native[jax] names");
    constexpr std::int64_t n_results = with_gradient ? 2 : 1;
    if (frame.arguments.size != 1 || frame.results.size != n_results)
        return reject("patrac_native: a density takes one argument and has a value and, if asked for, a gradient");
    const xla::Buffer* const x = buffer<T>(frame.arguments, 0);
    const xla::Buffer* const value = buffer<T>(frame.results, 0);
    const xla::Buffer* const gradient = with_gradient ? buffer<T>(frame.results, 1) : nullptr;
    if (!x || !value || (with_gradient && !gradient)) return reject("patrac_native: a buffer has another dtype");

    xla::StateArguments state{sizeof(xla::StateArguments), nullptr,     frame.context,
                              xla::stage_instantiate,      &state_type, nullptr};
    if (xla::Error* const failure = frame.api->state_get(&state)) return failure;
    // Programs of this handler are instantiated by that of the same type.
    const auto* const density = static_cast<const Density<T>*>(static_cast<const Held*>(state.state)->density.get());
    const std::int64_t dim = density->dim(), batch = size_of(*value);
    if (x->rank < 1 || x->dims[x->rank - 1] != dim || size_of(*x) != batch * dim ||
        (gradient && size_of(*gradient) != batch * dim))
        return reject("patrac_native: x must have the density's number of coordinates on its last axis");
    const std::int64_t threads = attribute(frame.attributes, "threads");

    const auto* const points = static_cast<const T*>(x->data);
    T* const slopes = gradient ? static_cast<T*>(gradient->data) : nullptr;
    if constexpr (std::is_same_v<T, double>) {
        density->evaluate(points, batch, static_cast<double*>(value->data), slopes, threads);
    } else if (batch == 1) {
        double wide = 0.0;
        density->evaluate(points, 1, &wide, slopes, threads);
        *static_cast<T*>(value->data) = static_cast<T>(wide);
    } else {
        std::vector<double> wide(static_cast<std::size_t>(batch));
        density->evaluate(points, batch, wide.data(), slopes, threads);
        for (std::size_t b = 0; b < wide.size(); ++b) static_cast<T*>(value->data)[b] = static_cast<T>(wide[b]);
    }
    return nullptr;
}

template <class T>
xla::Error* instantiate(const xla::CallFrame& frame) {
    std::shared_ptr<const Density<T>> density = table<T>().find(attribute(frame.attributes, "density"));
    if (!density)
        return error(frame, xla::error_failed_precondition,
                     "patrac_native: the function that to_jax returned has been deleted; keep it until what uses it is "
                     "compiled");
    auto held = std::make_unique<Held>(Held{std::move(density)});
    xla::StateArguments state{sizeof(xla::StateArguments), nullptr,     frame.context,
                              xla::stage_instantiate,      &state_type, held.get()};
    xla::Error* const failure = frame.api->state_set(&state);
    if (!failure) held.release();  // XLA owns it
    return failure;
}

// Answers a question for metadata, or calls act(frame) in its stage; no exception reaches XLA.
template <class Act>
xla::Error* answer(xla::CallFrame* frame, int stage, std::int64_t own_state, const Act& act) {
    for (xla::Extension* extension = frame->extensions; extension; extension = extension->next)
        if (extension->type == xla::metadata_extension) {
            describe(*reinterpret_cast<xla::MetadataExtension*>(extension)->metadata, own_state);
            return nullptr;
        }
    if (frame->stage != stage) return nullptr;
    try {
        return act(*frame);
    } catch (const std::exception& failure) {
        char message[512];  // where memory may be what fails
        std::snprintf(message, sizeof message, "patrac_native: %s", failure.what());
        return error(*frame, xla::error_internal, message);
    }
}

template <class T, bool with_gradient>
xla::Error* handle(xla::CallFrame* frame) {
    return answer(frame, xla::stage_execute, 0, evaluate<T, with_gradient>);
}

template <class T>
xla::Error* handle_instantiate(xla::CallFrame* frame) {
    return answer(frame, xla::stage_instantiate, state_type, instantiate<T>);
}

}  // namespace

template <class T>
xla::Handler xla_handler(bool with_gradient) {
    return with_gradient ? &handle<T, true> : &handle<T, false>;
}

template <class T>
xla::Handler xla_instantiate() {
    return &handle_instantiate<T>;
}

std::int64_t* xla_state_type() {
    return &state_type;
}
xla::TypeInfo* xla_state_info() {
    return &state_info;
}

template <class T>
std::int64_t publish(std::shared_ptr<const Density<T>> density) {
    static std::atomic<std::int64_t> next{0};
    const std::int64_t number = next++;
    table<T>().add(number, std::move(density));
    return number;
}

template <class T>
void withdraw(std::int64_t number) {
    table<T>().remove(number);
}

template xla::Handler xla_handler<float>(bool);
template xla::Handler xla_handler<double>(bool);
template xla::Handler xla_instantiate<float>();
template xla::Handler xla_instantiate<double>();
template std::int64_t publish<float>(std::shared_ptr<const Density<float>>);
template std::int64_t publish<double>(std::shared_ptr<const Density<double>>);
template void withdraw<float>(std::int64_t);
template void withdraw<double>(std::int64_t);

}  // namespace patrac
