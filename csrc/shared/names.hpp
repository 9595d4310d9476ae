// The names of enumerators as Python and files know them: one table beside each enum, complete or it does not compile.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace patrac {

template <class Enum>
struct Named {
    Enum value;
    std::string_view name;
};

// Whether `value` is an enumerator and not merely a number of the enum's type: compilers print such numbers as a cast.
template <auto value>
constexpr bool is_enumerator() {
    const std::string_view text = __PRETTY_FUNCTION__;
    return text.find(')', text.rfind("value =")) == std::string_view::npos;
}

// Whether the entries of a table, each with a `value` and a `name`, stand in the order of an enum that counts from 0.
template <class Entry, std::size_t size>
constexpr bool in_order(const Entry (&table)[size]) {
    for (std::size_t i = 0; i < size; ++i)
        if (static_cast<std::size_t>(table[i].value) != i || table[i].name.empty()) return false;
    return true;
}
// Whether an enum that counts from 0 has `size` enumerators.
template <class Enum, std::size_t size>
inline constexpr bool is_whole =
    is_enumerator<static_cast<Enum>(size - 1)>() && !is_enumerator<static_cast<Enum>(size)>();

template <class Entry, std::size_t size>
std::vector<std::string> names_of(const Entry (&table)[size]) {
    std::vector<std::string> names;
    for (const Entry& entry : table) names.emplace_back(entry.name);
    return names;
}

// The entry of a name; throws std::invalid_argument where there is none.
template <class Entry, std::size_t size>
const Entry& entry_of(const Entry (&table)[size], std::string_view name, const char* what) {
    for (const Entry& entry : table)
        if (entry.name == name) return entry;
    throw std::invalid_argument(std::string(what) + ": the compiled core has no '" + std::string(name) + "'");
}

}  // namespace patrac
