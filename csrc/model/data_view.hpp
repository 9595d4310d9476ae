// The data of a model, borrowed from the caller.
#pragma once

#include <cstdint>
#include <memory>

namespace patrac {

// Borrowed arrays, read only during the call that receives the view, except inputs with an owner.
template <class T>
struct DataView {
    std::int64_t n_rows = 0;
    const T* inputs = nullptr;                  // (n, d): entry (r, j) at inputs[r * row_step + j * column_step]
    const std::uint8_t* byte_inputs = nullptr;  // in place of `inputs`, where they came as bytes
    std::int64_t row_step = 0;
    std::int64_t column_step = 0;
    const double* targets = nullptr;      // (n, m), or class labels (n,); null when only f is wanted
    const double* row_weights = nullptr;  // (n,) factor of each row's term; null when targets is
    // Holds the inputs where the model may keep them and read them in place (it can if row_step is 1), else null.
    std::shared_ptr<const void> owner = nullptr;
};

}  // namespace patrac
