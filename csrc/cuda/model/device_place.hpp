// The memory that an array is in.
#pragma once

namespace patrac {

// Host and CUDA as DLPack numbers them. Arrays that an emulated device exports are the host's; its inputs have a
// number of their own, so that tests can distinguish them from the host's.
struct DevicePlace {
    static constexpr int host = 1, cuda = 2, emulated = -1;

    int kind = host;
    int index = 0;
};

}  // namespace patrac
