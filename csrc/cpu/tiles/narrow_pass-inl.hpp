// The pass that narrow_pass.hpp declares.
#pragma once

#include <cstdint>

#include "cpu/tiles/narrow_loop.hpp"
#include "cpu/tiles/narrow_pass.hpp"
#include "cpu/tiles/wide.hpp"
#include "shared/activation.hpp"
#include "shared/lane_sums.hpp"

namespace patrac::PATRAC_LEVEL {

template <class T>
PATRAC_FN void NarrowPass<T>::add_sums(bool first, const V* sums) {
    using D = Vec<double>;
    for (std::int64_t i = 0; i < plan_.dim; i += lanes) {
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
template <class Loop>
[[gnu::noinline]] double NarrowPass<T>::evaluate_tiles(const Loop& loop, const T* theta, T precision, T* gradient) {
    V* const sums = gradient ? reinterpret_cast<V*>(sums_.data()) : nullptr;
    const bool has_offset = !plan_.layers.back().offset_rows.empty();
    double log_likelihood = 0.0;
    for (std::int64_t t = 0; t < data_.n_tiles; ++t) {
        const T* const tile = data_.tile(t);
        const TileItems<T> inputs = data_.constants(0, t);
        const T* const offset = has_offset ? tile + data_.layout.offsets.back() : zeros_.data();
        log_likelihood += loop.evaluate({inputs.base, inputs.step, offset, tile + data_.layout.targets,
                                         tile + data_.layout.row_weights, data_.vectors_in_tile(t)},
                                        theta, precision, kept_.data(), sums);
        if (gradient) add_sums(t == 0, sums);
    }
    if (gradient) narrow(total_.data(), plan_.dim, gradient);
    return log_likelihood;
}

template <class T>
template <int W>
PATRAC_FN double NarrowPass<T>::evaluate_width(const T* theta, T precision, T* gradient) {
    if constexpr (W > 1)
        if (plan_.layers.front().n_rows() < W) return evaluate_width<W - 1>(theta, precision, gradient);
    return evaluate_tiles(NarrowLoop<T, W, Tanh>(plan_.n_inputs, std::ssize(plan_.layers) - 1), theta, precision,
                          gradient);
}

template <class T>
[[gnu::noinline]] double NarrowPass<T>::evaluate(const T* theta, T precision, T* gradient) {
    return evaluate_width<widest_narrow>(theta, precision, gradient);
}

}  // namespace patrac::PATRAC_LEVEL
