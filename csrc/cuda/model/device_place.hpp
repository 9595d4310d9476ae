// Whose memory an array is in.
#pragma once

namespace patrac {

// Host and CUDA as DLPack numbers them. What an emulated device hands out is the host's; what it is given has a number
// of its own, so that tests tell it from the host's.
struct DevicePlace {
    static constexpr int host = 1, cuda = 2, emulated = -1;

    int kind = host;
    int index = 0;
};

}  // namespace patrac
