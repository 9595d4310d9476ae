// The work on a device before any chain runs: inspects the inputs, folds the fixed part of the network over them, and
// lays them out as evaluations read them (twin of cpu/tiles/pack.hpp).
//
// Each piece of work is shared by any number of workers W, of which worker w takes items w, w + W, w + 2 W ..; no
// worker waits for another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "cuda/model/input_matrix.hpp"
#include "cuda/model/tile.hpp"
#include "shared/activation.hpp"

namespace patrac::PATRAC_LEVEL {

// Number of workers for so many items.
inline std::int64_t workers_of(std::int64_t items) {
    constexpr std::int64_t of_block = 256, max_workers = 1 << 16;
    return std::clamp((items + of_block - 1) / of_block * of_block, of_block, max_workers);
}

PATRAC_DEVICE std::int64_t chosen(const int* columns, std::int64_t s) {
    return columns ? columns[s] : s;
}

struct InspectWork {
    InputMatrix from;
    std::int64_t n_rows;
    const int* columns;  // (n_columns,) that are inspected, or null for the first n_columns
    int n_columns;
    double max_magnitude;  // of an entry that is not bad
    InputFindings* found;  // one for each worker

    std::int64_t items() const { return n_rows * n_columns; }
    PATRAC_DEVICE void run(std::int64_t worker, std::int64_t workers) const {
        InputFindings own;
        for (std::int64_t i = worker; i < n_rows * n_columns; i += workers) {
            const std::int64_t row = i / n_columns, column = chosen(columns, i % n_columns);
            const double x = from.at(row, column);
            own.bad += !(x >= -max_magnitude && x <= max_magnitude);
            // The conversion is within int's range where it is reached.
            if (!(x >= 0.0 && x <= 255.0) || x != static_cast<double>(static_cast<int>(x))) own.bytes = false;
        }
        found[worker] = own;
    }
};

// out[nodes[o]][row] = zeta(bias[o] + sum over j of weights[o][j] below[row][j] + addend[row][nodes[o]]), in float64.
struct AffineWork {
    InputMatrix below;
    std::int64_t n_rows;
    int n_out, n_in;
    const int* nodes;       // (n_out,)
    const double* weights;  // (n_out, n_in): what is zero is not read from below
    const double* biases;   // (n_out,)
    InputMatrix addend;     // none where data is null
    bool activates;
    Activation activation;
    double* out;  // (nodes, pitch)
    std::int64_t pitch;

    std::int64_t items() const { return n_rows * n_out; }
    PATRAC_DEVICE void run(std::int64_t worker, std::int64_t workers) const {
        for (std::int64_t i = worker; i < n_rows * n_out; i += workers) {
            const std::int64_t row = i % n_rows, o = i / n_rows;
            double sum = biases[o];
            for (int j = 0; j < n_in; ++j)
                if (const double weight = weights[o * n_in + j]; weight != 0.0) sum += weight * below.at(row, j);
            if (addend.data) sum += addend.at(row, nodes[o]);
            if (activates) sum = visit(activation, [&](auto zeta) { return zeta.value(sum); });
            out[nodes[o] * pitch + row] = sum;
        }
    }
};

// Chosen columns to another type and order: entry (r, s) goes to
// to[r / tile_rows * tile_step + r % tile_rows * row_step + s * column_step].
template <class X>
struct CopyWork {
    InputMatrix from;
    std::int64_t from_rows;  // rows beyond them repeat the last one
    const int* columns;      // (n_columns,), or null for the first n_columns
    int n_columns;
    std::int64_t n_rows;
    X* to;
    std::int64_t tile_rows, tile_step, row_step, column_step;

    std::int64_t items() const { return n_rows * n_columns; }
    PATRAC_DEVICE void run(std::int64_t worker, std::int64_t workers) const {
        // Neighbouring workers write side by side.
        const bool by_row = row_step == 1;
        for (std::int64_t i = worker; i < n_rows * n_columns; i += workers) {
            const std::int64_t row = by_row ? i % n_rows : i / n_columns, s = by_row ? i / n_rows : i % n_columns;
            const double x = from.at(row < from_rows ? row : from_rows - 1, chosen(columns, s));
            to[row / tile_rows * tile_step + row % tile_rows * row_step + s * column_step] = static_cast<X>(x);
        }
    }
};

// To (columns, stride) in each of the tiles, which lie `tile_size` apart; the last tile's padding repeats the last row.
template <class X>
CopyWork<X> tile_copy(const InputMatrix& from, std::int64_t n_rows, const int* columns, int n_columns,
                      std::int64_t stride, std::int64_t n_tiles, std::int64_t tile_size, X* to) {
    return {from, n_rows, columns, n_columns, n_tiles * stride, to, stride, tile_size, 1, stride};
}
// To (rows, pitch).
template <class X>
CopyWork<X> row_copy(const InputMatrix& from, std::int64_t n_rows, const int* columns, int n_columns,
                     std::int64_t pitch, X* to) {
    return {from, n_rows, columns, n_columns, n_rows, to, n_rows, 0, pitch, 1};
}
// To (columns, pitch).
template <class X>
CopyWork<X> column_copy(const InputMatrix& from, std::int64_t n_rows, const int* columns, int n_columns,
                        std::int64_t pitch, X* to) {
    return {from, n_rows, columns, n_columns, n_rows, to, n_rows, 0, 1, pitch};
}

using SetupWork = std::variant<InspectWork, AffineWork, CopyWork<std::uint8_t>, CopyWork<float>, CopyWork<double>>;

}  // namespace patrac::PATRAC_LEVEL
