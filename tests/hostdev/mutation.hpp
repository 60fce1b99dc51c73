#pragma once
// Takes one synchronisation out of a program, to see whether its tests notice. Chosen by the environment:
//   HOSTDEV_OMIT=norm.cu:41   the barrier, fence, wait for copies, or atomic at that line does nothing (an atomic:
//   isn't one) HOSTDEV_OMIT=wait:3       the fourth Stream::wait of the program does nothing HOSTDEV_LIST=FILE tells
//   FILE what each test could be asked to leave out (tests/mutants/run)
#include "scheduler.hpp"

namespace bankml::host {

bool omitted(const Site& at) noexcept;
bool omitted_wait() noexcept;

// Appends to the list, one "SITE<tab>TEST<tab>MILLISECONDS" a line, what has been met since the last call.
void list_sites(const char* test, long long milliseconds);

}  // namespace bankml::host
