// Mistakes that tests/test_races.py writes into a copy of the device functions: the environment chooses one of them, so
// that one program serves all. It is read before main, without a lock, which would order threads and hide a race.
#pragma once

#include <cstdlib>
#include <string_view>

inline const std::string_view chosen_mistake = std::getenv("MISTAKE") ? std::getenv("MISTAKE") : "";

inline bool is_chosen_mistake(std::string_view name) {
    return name == chosen_mistake;
}
