#pragma once
// Memory put aside for the moment when there is none: what then has to go on (queue entries, error answers, the ends of
// connections) is small. The daemon's operator new turns to it when the system has no memory. Any thread, nothing
// fails.
#include <cstddef>

namespace bankml {

// `bytes` of the reserve, aligned for any type; nullptr if that is more than 4 KiB, or if nothing is left.
void* allocate_reserved(std::size_t bytes) noexcept;

// Gives back what allocate_reserved() gave; false if `piece` is not of the reserve.
bool release_reserved(void* piece) noexcept;

// Whether half of the reserve is in use and the system still has no memory: better to turn down what is new.
bool memory_is_short() noexcept;

}  // namespace bankml
