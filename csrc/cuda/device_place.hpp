// Whose memory an array is in.
#pragma once

namespace patrac {

// As DLPack numbers them. Arrays that an emulated device hands out are the host's; those that it is given say that they
// are an extension's, which is what DLPack has that kind for, so that tests tell them from the host's.
struct DevicePlace {
    static constexpr int host = 1, cuda = 2, emulated = 12;

    int kind = host;
    int index = 0;
};

}  // namespace patrac
