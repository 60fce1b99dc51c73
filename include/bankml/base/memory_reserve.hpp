#pragma once
// Memory put aside for the moment when there is none: what then has to go on (queue entries, error answers) is small.

namespace bankml {

// From here on an operator new that finds no memory gives the reserve back to the system and tries once more, before it
// throws std::bad_alloc. Once, before other threads start.
void install_memory_reserve();

// Takes the reserve again if it has been used, and if there is memory for it. Any thread; costs next to nothing.
void refill_memory_reserve() noexcept;

}  // namespace bankml
