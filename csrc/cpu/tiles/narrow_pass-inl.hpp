// The pass that narrow_pass.hpp declares.
#pragma once

#include <cstdint>

#include "cpu/tiles/narrow_collapsed.hpp"
#include "cpu/tiles/narrow_loop.hpp"
#include "cpu/tiles/narrow_pass.hpp"
#include "cpu/tiles/wide.hpp"
#include "shared/activation.hpp"
#include "shared/lane_sums.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
PATRAC_FN void NarrowPass<T>::add_sums(bool first, std::int64_t count) {
    using D = Vec<double>;
    const V* const sums = reinterpret_cast<const V*>(sums_.data());
    for (std::int64_t i = 0; i < count; i += lanes) {
        T of_tile[lanes];
        store<V>(of_tile, lane_sums(sums + i));
        for (std::int64_t j = 0; j < lanes; j += lanes_v<D>) {
            double* const total = total_.data() + i + j;
            const D before = first ? D{} : load<D>(total);
            store<D>(total, load_wide(of_tile + j) + before);
        }
    }
}

template <class T>
PATRAC_FN NarrowTile<T> NarrowPass<T>::tile(std::int64_t t) const {
    const T* const of_tile = data_.tile(t);
    const TileItems<T> inputs = data_.constants(0, t);
    const bool has_offset = !plan_.layers.back().offset_rows.empty();
    return {inputs.base,
            inputs.step,
            has_offset ? of_tile + data_.layout.offsets.back() : zeros_.data(),
            of_tile + data_.layout.targets,
            row_weights_ ? row_weights_ + t * data_.layout.stride : of_tile + data_.layout.row_weights,
            data_.vectors_in_tile(t)};
}

template <class T>
template <class Loop>
[[gnu::noinline]] double NarrowPass<T>::evaluate_tiles(const Loop& loop, const T* theta, T precision, T* gradient) {
    V* const sums = gradient ? reinterpret_cast<V*>(sums_.data()) : nullptr;
    double log_likelihood = 0.0;
    for (std::int64_t t = 0; t < data_.n_tiles; ++t) {
        log_likelihood += loop.evaluate(tile(t), theta, precision, kept_.data(), sums);
        if (gradient) add_sums(t == 0, plan_.dim);
    }
    if (gradient) narrow(total_.data(), plan_.dim, gradient);
    return log_likelihood;
}

template <class T>
template <class Loop>
[[gnu::noinline]] void NarrowPass<T>::moments_of_tiles(const Loop& loop, const T* theta, Moments& moments) {
    constexpr int W = Loop::width;
    for (std::int64_t t = 0; t < data_.n_tiles; ++t) {
        const NarrowTile<T> of_tile = tile(t);
        loop.forward(of_tile, theta, kept(t));
        narrow_moments<T, W>(of_tile, loop.last_hidden(kept(t)), loop.kept() * lanes,
                             reinterpret_cast<V*>(sums_.data()));
        add_sums(t == 0, n_narrow_moments(W));
    }
    const double* total = total_.data();
    for (int i = 0; i <= W; ++i) {
        for (int j = i; j <= W; ++j) moments.gram[i * (W + 1) + j] = *total++;
        moments.cross[i] = *total++;
    }
}

template <class T>
template <class Loop>
[[gnu::noinline]] double NarrowPass<T>::evaluate_collapsed_tiles(const Loop& loop, const T* theta, T precision,
                                                                 const T* reverse_weights, T* gradient) {
    const std::int64_t step = loop.kept() * lanes;
    double log_likelihood = 0.0;
    for (std::int64_t t = 0; t < data_.n_tiles; ++t) {
        const NarrowTile<T> of_tile = tile(t);
        T* const kept = this->kept(t);
        if (!keeps_all_ && data_.n_tiles > 1) loop.forward(of_tile, theta, kept);
        log_likelihood +=
            narrow_collapsed<T, Loop::width, Tanh>(of_tile, loop.output(theta), reverse_weights, precision,
                                                   loop.last_hidden(kept), loop.last_delta(kept), step);
        if (!reverse_weights) continue;
        loop.reverse(of_tile, theta, kept, reinterpret_cast<V*>(sums_.data()));
        add_sums(t == 0, loop.hidden_dim());
    }
    if (reverse_weights) narrow(total_.data(), loop.hidden_dim(), gradient);
    return log_likelihood;
}

template <class T>
template <int W, class F>
PATRAC_FN auto NarrowPass<T>::at_width(const F& f) const {
    if constexpr (W > 1)
        if (width() < W) return at_width<W - 1>(f);
    return f(NarrowLoop<T, W, Tanh>(plan_.n_inputs, std::ssize(plan_.layers) - 1));
}

template <class T>
[[gnu::noinline]] double NarrowPass<T>::evaluate(const T* theta, T precision, T* gradient) {
    return at_width([&](const auto& loop) { return evaluate_tiles(loop, theta, precision, gradient); });
}

template <class T>
[[gnu::noinline]] void NarrowPass<T>::moments(const T* theta, Moments& moments) {
    at_width([&](const auto& loop) { moments_of_tiles(loop, theta, moments); });
}

template <class T>
[[gnu::noinline]] double NarrowPass<T>::evaluate_collapsed(const T* theta, T precision, const T* reverse_weights,
                                                           T* gradient) {
    return at_width(
        [&](const auto& loop) { return evaluate_collapsed_tiles(loop, theta, precision, reverse_weights, gradient); });
}

}  // namespace patrac::PATRAC_LEVEL
