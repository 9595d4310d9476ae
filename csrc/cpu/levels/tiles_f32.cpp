// The tile passes of one level in float32.
#include "cpu/tiles/narrow_pass-inl.hpp"
#include "cpu/tiles/row_variances-inl.hpp"
#include "cpu/tiles/tile_pass-inl.hpp"

namespace patrac::PATRAC_LEVEL {

template class NarrowPass<float>;
template class TilePass<float>;

}  // namespace patrac::PATRAC_LEVEL
