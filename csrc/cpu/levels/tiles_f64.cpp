// The tile passes of one level in float64, and the fixed part of a network, which is in float64 always.
#include "cpu/tiles/narrow_pass-inl.hpp"
#include "cpu/tiles/pack-inl.hpp"
#include "cpu/tiles/row_variances-inl.hpp"
#include "cpu/tiles/tile_pass-inl.hpp"

namespace patrac::PATRAC_LEVEL {

template class NarrowPass<double>;
template class TilePass<double>;

}  // namespace patrac::PATRAC_LEVEL
