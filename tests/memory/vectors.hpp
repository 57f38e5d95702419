// SPDX-License-Identifier: Apache-2.0
// For the tests of vector loops: regions beside pages that must not be touched, and every instruction set in turn.
#pragma once

#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/kernels_dispatch.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>

namespace memory_tests {

/// `bytes` bytes between two pages without access. The end is at the second one (less `slack` bytes), or the begin at
/// the first one: reading or writing one byte outside, on that side, ends the program.
class fenced {
public:
  fenced(std::size_t bytes, bool at_end, std::size_t slack) : bytes_{bytes} {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t inside = (bytes + slack + page - 1) / page * page + page;
    length_ = inside + 2 * page;
    void* memory = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    base_ = static_cast<std::byte*>(memory);
    REQUIRE(::mprotect(base_, page, PROT_NONE) == 0);
    REQUIRE(::mprotect(base_ + page + inside, page, PROT_NONE) == 0);
    data_ = at_end ? base_ + page + inside - slack - bytes : base_ + page + slack;
  }
  fenced(const fenced&) = delete;
  fenced& operator=(const fenced&) = delete;
  ~fenced() { ::munmap(base_, length_); }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  void randomise(random_engine& random) const {
    for (std::size_t i = 0; i < bytes_ / sizeof(T); ++i) troupe::detail::store<T>(data_, i, any_value<T>(random));
  }

private:
  std::byte* base_;
  std::byte* data_;
  std::size_t bytes_;
  std::size_t length_;
};

/// Runs the function once for every instruction set that this processor has, best first, then without any.
template <class Function>
void for_each_instruction_set(Function function) {
  const std::int64_t all = troupe::detail::usable_instruction_sets();
  REQUIRE(all != 0);
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    troupe::detail::choose_instruction_set(left & -left);
    function(std::string{troupe::detail::instruction_set()});
  }
  troupe::detail::choose_instruction_set(all);
}

}  // namespace memory_tests
