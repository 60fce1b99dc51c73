#pragma once
// Takes one synchronisation out of a program, to see whether its tests notice. Chosen by the environment:
//   HOSTDEV_OMIT=norm.cu:41           the barrier, fence, wait for copies, or atomic at that line does nothing (an
//                                     atomic: isn't one)
//   HOSTDEV_OMIT=kv_transport.cpp:188 the Stream::wait() or Event::wait() that is called at that line returns at once
//   HOSTDEV_LIST=FILE                 tells FILE what each test could be asked to leave out (tests/mutants/run)
#include "scheduler.hpp"

namespace bankml::host {

bool omitted(const Site& at) noexcept;
// The same for a call that doesn't tell its place, by the address that it returns to. Host threads only.
bool omitted_call(const void* return_address);

// Appends to the list, one "SITE<tab>TEST<tab>MILLISECONDS" a line, what has been met since the last call.
void list_sites(const char* test, long long milliseconds);

}  // namespace bankml::host
