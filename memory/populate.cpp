// SPDX-License-Identifier: Apache-2.0
#include "memory/populate.hpp"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace troupe {

void populate(void* at, std::size_t bytes) noexcept {
  // The C library of Debian 12 names it, older ones do not.
#ifdef MADV_POPULATE_WRITE
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % page;
  if (bytes > 0) ::madvise(static_cast<std::byte*>(at) - before, before + bytes, MADV_POPULATE_WRITE);
#else
  static_cast<void>(at), static_cast<void>(bytes);
#endif
}

}  // namespace troupe
